//! Checks of each node, from its metrics.

use super::finding::Finding;
use crate::cli::text::short;
use crate::http::{Scrape, Scraper};
use crate::limits::{
    DOCTOR_LEADERS_AN_HOUR_WARN, DOCTOR_QUOTA_RATIO_WARN, DOCTOR_UNCOUNTED_AN_HOUR_SECS_WARN, DOCTOR_WALL_SECS_WARN,
};
use crate::service::Status;

/// Checks what the nodes have counted.
pub(super) async fn checks(status: &Status, scraper: &Scraper) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut walls = Vec::new();
    for node in status.nodes.iter().filter(|node| node.healthy == Some(true)) {
        match scraper.node(&node.http).await {
            Ok(scrape) => {
                let scrape = scrape.of_node(node.id);
                walls.extend(scrape.wall_ahead().map(|ahead| (node.id, ahead)));
                findings.extend(counted(node.id, &scrape));
            }
            Err(why) => {
                let detail = format!("node {}: no metrics: {why}", node.id);
                findings.push(Finding::warn("metrics", detail, "without them its last hour is not checked"));
            }
        }
    }
    findings.extend(wall_clocks(&walls));
    findings
}

/// Judges what one node has counted in the last hour, or since it started if that is less, and the use of its quotas.
/// What a node of an older build does not count is not judged.
fn counted(node: u64, scrape: &Scrape) -> Vec<Finding> {
    const CHECK: &str = "last hour";
    let started = scrape.largest("process_start_time_seconds");
    let up_secs = started.zip(scrape.wall).map_or(0.0, |(started, wall)| (wall as f64 - started).max(0.0));
    let up = short((up_secs * 1_000.0) as u64);
    let uncounted = scrape.largest("lockkeeper_log_time_uncounted_last_hour_seconds").unwrap_or_default();
    let mut findings = Vec::new();
    if let Some(changes) = scrape.largest("lockkeeper_raft_leader_changes_last_hour") {
        let detail = format!("node {node} runs for {up}; changes of the leader in the last hour: {changes}");
        let advice = "a slow disk, a network that drops packets, or a timing profile that is too short";
        findings.push(Finding::below(CHECK, changes, [Some(DOCTOR_LEADERS_AN_HOUR_WARN), None], detail, advice));
    }
    if DOCTOR_UNCOUNTED_AN_HOUR_SECS_WARN < uncounted {
        let detail = format!("node {node} runs for {up}; not counted as log time in the last hour: {uncounted:.1} s");
        findings.push(Finding::warn(CHECK, detail, "the leader stalls: give it a processor, and a faster disk"));
    }
    let quota = scrape.largest("lockkeeper_quota_used_ratio").unwrap_or_default();
    if DOCTOR_QUOTA_RATIO_WARN < quota {
        let detail = format!("node {node}: a namespace has used {:.0} % of a quota", quota * 100.0);
        findings.push(Finding::warn("quota", detail, "close sessions and release locks that are no longer needed"));
    }
    findings
}

/// Compares the wall clocks of the nodes, each by the seconds that it is ahead of the one here. Only dates in the
/// history depend on them.
pub(super) fn wall_clocks(walls: &[(u64, i64)]) -> Option<Finding> {
    let (last, first) = (walls.iter().min_by_key(|(_, ahead)| ahead)?, walls.iter().max_by_key(|(_, ahead)| ahead)?);
    // Dates are cut to whole seconds.
    let apart = first.1.abs_diff(last.1);
    let time = short(apart.saturating_mul(1_000));
    let detail = format!("the wall clock of node {} is {time} ahead of that of node {}", first.0, last.0);
    let advice = "run NTP on both: no lock depends on it, but the dates in the history do";
    (DOCTOR_WALL_SECS_WARN < apart).then(|| Finding::warn("wall clock", detail, advice))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    /// A node that has run for a month, with what it counted in the last hour. Before that it counted much more.
    fn scrape(changes: u64, uncounted: f64, quota: f64) -> Scrape {
        let text = format!(
            "lockkeeper_raft_leader_changes_last_hour{{node=\"1\"}} {changes}\nprocess_start_time_seconds 1000\n\
             lockkeeper_raft_leader_changes_total{{node=\"1\"}} 9000\n\
             lockkeeper_log_time_uncounted_last_hour_seconds{{node=\"1\"}} {uncounted}\n\
             lockkeeper_log_time_uncounted_seconds_total{{node=\"1\"}} 9000\n\
             lockkeeper_quota_used_ratio{{node=\"1\",quota=\"locks\"}} {quota}\n"
        );
        let mut scrape = Scrape::parse(&text);
        scrape.wall = Some(1_000 + 30 * 86_400);
        scrape
    }

    /// Only the last hour is judged: a bad hour after a good month is a warning, and a good hour after a bad month is
    /// none.
    #[test]
    fn the_last_hour_is_judged() {
        let bad = |scrape: &Scrape| counted(1, scrape).iter().filter(|finding| finding.level == Level::Warn).count();
        assert_eq!(bad(&scrape(3, 2.0, 0.8)), 0);
        assert_eq!(bad(&scrape(4, 2.1, 0.81)), 3);
        let findings = counted(1, &scrape(4, 2.1, 0.0));
        let last = ["changes of the leader in the last hour: 4", "not counted as log time in the last hour: 2.1 s"];
        for (finding, end) in findings.iter().zip(last) {
            assert!(finding.detail.ends_with(end), "{}", finding.detail);
        }
    }

    /// A node of an older build does not count by the hour, so it is not said to have had no change of the leader.
    #[test]
    fn what_a_node_does_not_count_is_no_finding() {
        let older = Scrape::parse("lockkeeper_raft_leader_changes_total{node=\"1\"} 9000\n");
        assert!(counted(1, &older).is_empty());
    }

    /// Wall clocks that differ by a rounding are equal.
    #[test]
    fn wall_clocks_are_compared() {
        assert_eq!(wall_clocks(&[(1, -1), (2, 1), (3, 0)]), None);
        let apart = wall_clocks(&[(1, -2), (2, 1), (3, 0)]).expect("a finding");
        assert_eq!(apart.detail, "the wall clock of node 2 is 3s ahead of that of node 1");
        assert_eq!(wall_clocks(&[]), None);
    }
}
