//! The text in which Prometheus reads the metrics of a node.

/// Returns the metrics that a node shows, of those of the whole process. The metrics of other nodes are left out. What
/// the process counts for all its nodes gets the label of this node. A counter of seconds was recorded as a gauge, and
/// becomes a counter.
pub(super) fn of_node(text: &str, node: u64) -> String {
    let own = format!("node=\"{node}\"");
    let mut shown = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.is_empty()) {
        let Some(line) = sample(line, &own) else { continue };
        shown.push_str(&line);
        shown.push('\n');
    }
    shown
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
