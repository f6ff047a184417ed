//! The metrics of the process and of one node, in the text that Prometheus reads.

use std::fmt::Write as _;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Returns the metrics of the process that every client library of Prometheus has, under their usual names, without
/// labels. Leaves out what this system does not report.
pub(super) fn of_process() -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    if let Some(Usage { cpu_seconds, resident_bytes, started_seconds }) = usage("self") {
        add("process_cpu_seconds_total", "counter", "Time of processors that the process has used", cpu_seconds);
        add("process_resident_memory_bytes", "gauge", "Memory of the process that is not swapped out", resident_bytes);
        add("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970", started_seconds);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them reads this directory.
        let open = open.count().saturating_sub(1);
        add("process_open_fds", "gauge", "Open file descriptors", open as f64);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        add("process_max_fds", "gauge", "Most file descriptors that the process may have", most as f64);
    }
    text
}

/// What a process has used.
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: f64,
    started_seconds: f64,
}

/// Reads what Linux reports about a process, by its id or as `self`; `None` on other systems, or if it does not run.
pub(super) fn usage(process: &str) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
    // The name of the program, in parentheses, may contain spaces. The numbers of the fields are those of proc(5).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = clock_ticks_per_second() as f64;
    Some(Usage {
        cpu_seconds: (field(14)? + field(15)?) / ticks,
        resident_bytes: field(24)? * page_size() as f64,
        started_seconds: boot + field(22)? / ticks,
    })
}

/// Returns the metrics that a node shows, of those of the whole process. The metrics of other nodes are left out. What
/// the process counts for all its nodes gets the label of this node. A counter of seconds was recorded as a gauge, and
/// becomes a counter.
pub(super) fn of_node(text: &str, node: u64) -> String {
    let own = format!("node=\"{node}\"");
    let shown = text.lines().filter(|line| !line.is_empty()).filter_map(|line| sample(line, &own));
    shown.map(|line| line + "\n").collect()
}

/// Returns a line for the node with this label; `None` if it belongs to another node.
fn sample(line: &str, own: &str) -> Option<String> {
    if line.starts_with('#') {
        let counter = line.strip_suffix(" gauge").filter(|line| line.ends_with("_total"));
        return Some(counter.map_or(line.to_owned(), |line| format!("{line} counter")));
    }
    // A quote within a value is preceded by a backslash, so no value looks like a label.
    let has = |labels: &str, label: &str| labels.starts_with(label) || labels.contains(&format!(",{label}"));
    let Some((name, labels)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(format!("{name}{{{own}}} {value}"));
    };
    if !has(labels, "node=\"") {
        return Some(format!("{name}{{{own},{labels}"));
    }
    has(labels, own).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.expect("the metric").parse().expect("a number")
    }

    /// The metrics follow the process: more descriptors while a file is open, more memory, and time that was used.
    #[cfg(target_os = "linux")]
    #[test]
    fn they_are_those_of_this_process() {
        let before = of_process();
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").expect("open")).collect();
        let mut memory = vec![0_u8; 64 << 20];
        memory.iter_mut().step_by(1_024).for_each(|byte| *byte = 1);
        let after = of_process();
        let more = |name| value(&after, name) - value(&before, name);
        // Other tests of the same process open and close files, too, but at least these are open.
        assert!(50.0 <= value(&after, "process_open_fds"));
        assert!(value(&after, "process_resident_memory_bytes") >= f64::from(64 << 20));
        assert!(0.0 <= more("process_cpu_seconds_total"));
        assert_eq!(more("process_start_time_seconds"), 0.0);
        assert!(1e9 < value(&after, "process_start_time_seconds"));
        assert!(value(&after, "process_open_fds") <= value(&after, "process_max_fds"));
        drop((files, memory));
    }

    /// A node shows its own metrics and those of the process, under its own label, and none of another node.
    #[test]
    fn a_node_shows_no_other_node() {
        let text = "# HELP a help of a\n# TYPE a gauge\na{node=\"1\",b=\"c\"} 1\na{b=\"c\",node=\"11\"} 2\n\n\
                    # TYPE s_total gauge\ns_total{node=\"1\"} 0.5\n# TYPE p counter\np 3\np{port=\"http\"} 4\n\
                    a{node=\"2\",b=\",node=\\\"1\\\"\"} 5\n";
        let shown = "# HELP a help of a\n# TYPE a gauge\na{node=\"1\",b=\"c\"} 1\n# TYPE s_total counter\n\
                     s_total{node=\"1\"} 0.5\n# TYPE p counter\np{node=\"1\"} 3\np{node=\"1\",port=\"http\"} 4\n";
        assert_eq!(of_node(text, 1), shown);
    }
}
