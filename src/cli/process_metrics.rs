//! The metrics of the process that every client library of Prometheus has, under their usual names.

use std::fmt::Write as _;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Returns the metrics of this process as text, without labels. Leaves out what this system does not report.
pub(super) fn text() -> String {
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
        let before = text();
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").expect("open")).collect();
        let mut memory = vec![0_u8; 64 << 20];
        memory.iter_mut().step_by(1_024).for_each(|byte| *byte = 1);
        let after = text();
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
}
