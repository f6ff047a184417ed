//! Reads what a frame shows: the status, the metrics of the nodes, and the locks.

use std::collections::BTreeMap;

use super::view::{LockRow, NodeRow, View};
use crate::cli::connect::Client;
use crate::cli::doctor::differences;
use crate::cli::error::Failure;
use crate::cli::text::called;
use crate::client::{ClientError, ReadAt};
use crate::clock::{Clock, Instant, SystemClock};
use crate::http::{Scrape, Scraper};
use crate::limits::TOP_LOCKS_MAX;
use crate::model::{ExplainedWait, Explanation, ListShow, LockSummary, LogTime, WaitReason};
use crate::service::{NodeStatus, Status};
use crate::shapes::{behind, role_word};

/// Reads the cluster for one frame after the other. Rates are of the time between two reads.
pub(super) struct Reader<'a> {
    client: &'a Client,
    scraper: Scraper,
    /// The previous metrics of each node, and when they were read.
    before: BTreeMap<u64, (Instant, Scrape)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(client: &'a Client, scraper: Scraper) -> Self {
        Self { client, scraper, before: BTreeMap::new() }
    }

    /// Reads the cluster. At most `explained` waiting locks get the length of their longest wait.
    pub(super) async fn read(&mut self, prefix: &str, explained: usize) -> Result<View, Failure> {
        let status = self.client.status().await?;
        let mut view = View {
            cluster: status.cluster.clone(),
            leader: status.leader,
            term: status.term,
            led_ms: status.led_ms,
            sessions: status.totals.sessions,
            held: status.totals.holders,
            waiting: status.totals.waiters,
            ..View::default()
        };
        self.nodes(&status, &mut view).await;
        if status.leader.is_some() {
            self.locks(prefix, explained, &mut view).await?;
        } else {
            view.notes.push("the locks are not known while no node leads".to_owned());
        }
        Ok(view)
    }

    async fn nodes(&mut self, status: &Status, view: &mut View) {
        let mut walls = Vec::new();
        for node in &status.nodes {
            let mut row = row(status, node);
            match self.scraper.node(&node.http).await {
                Ok(scrape) => {
                    let (scrape, now) = (scrape.of_node(node.id), SystemClock::monotonic().now());
                    let before = self.before.get(&node.id).map(|(at, scrape)| (now.since(*at).as_secs_f64(), scrape));
                    measured(&mut row, &scrape, before);
                    walls.extend(scrape.wall_ahead().map(|ahead| (node.id, ahead)));
                    self.before.insert(node.id, (now, scrape));
                }
                Err(why) => view.notes.push(format!("node {}: no metrics: {why}", node.id)),
            }
            view.nodes.push(row);
        }
        view.notes.extend(differences(status, &walls));
    }

    async fn locks(&self, prefix: &str, explained: usize, view: &mut View) -> Result<(), ClientError> {
        let rows = u32::try_from(TOP_LOCKS_MAX).unwrap_or(u32::MAX);
        let waiting = self.client.list(prefix).show(ListShow::Waiting).rows(rows).page().await?;
        let held = self.client.list(prefix).show(ListShow::Held).rows(rows).page().await?;
        view.more = waiting.value.more || held.value.more;
        let mut seen: Vec<_> = waiting.value.rows.iter().map(|summary| lock(summary, waiting.now)).collect();
        seen.sort_by_key(|row| std::cmp::Reverse(row.waiters));
        for row in seen.iter_mut().take(explained) {
            let about = self.client.about(&row.lock)?;
            let ReadAt { now, value, .. } = self.client.explain(about).await?;
            explain(row, &value, now);
        }
        let known = |summary: &&LockSummary| waiting.value.rows.iter().all(|row| row.lock != summary.lock);
        seen.extend(held.value.rows.iter().filter(known).map(|summary| lock(summary, held.now)));
        view.locks = seen;
        Ok(())
    }
}

fn row(status: &Status, node: &NodeStatus) -> NodeRow {
    NodeRow {
        id: node.id,
        role: role_word(node.role),
        healthy: node.healthy == Some(true),
        applied: node.applied,
        behind: behind(status, node),
        ..NodeRow::default()
    }
}

/// Adds what a node measured: since the previous metrics, which are these seconds old, or since it started.
fn measured(row: &mut NodeRow, scrape: &Scrape, before: Option<(f64, &Scrape)>) {
    let earlier = before.map(|(_, scrape)| scrape);
    let p99 = |name| scrape.quantile(name, 0.99, earlier).map(|seconds| (seconds * 1e6) as u64);
    row.commit_us = p99("lockkeeper_raft_commit_duration_seconds");
    row.fsync_us = p99("lockkeeper_wal_fsync_duration_seconds");
    [row.commit_ms, row.fsync_ms] = [row.commit_us, row.fsync_us].map(|us| us.map(|us| us / 1_000));
    row.memory_bytes = scrape.largest("process_resident_memory_bytes").map(|bytes| bytes as u64);
    row.uncounted_ms = scrape.sum("lockkeeper_log_time_uncounted_seconds_total").map(|seconds| (seconds * 1e3) as u64);
    row.cpu_percent = before.filter(|(seconds, _)| 0.0 < *seconds).and_then(|(seconds, earlier)| {
        let used = scrape.grown("process_cpu_seconds_total", earlier)?;
        Some((used / seconds * 100.0).round() as u64)
    });
}

fn lock(summary: &LockSummary, now: LogTime) -> LockRow {
    let oldest = summary.oldest.as_ref();
    LockRow {
        lock: summary.lock.name.to_string(),
        holder: oldest.map(|holder| called(&holder.metadata)),
        token: oldest.map(|holder| holder.token.to_string()),
        held_ms: oldest.map(|holder| now.ms_since(holder.since)),
        waiters: summary.waiters,
        longest_wait_ms: None,
        state: None,
    }
}

/// Adds the longest wait for a lock, and what is known of the client that holds it.
fn explain(row: &mut LockRow, explanation: &Explanation, now: LogTime) {
    let waits: Vec<&ExplainedWait> =
        explanation.chain.iter().filter(|wait| wait.lock.name.as_str() == row.lock).collect();
    row.longest_wait_ms = waits.iter().map(|wait| now.ms_since(wait.waiter.since)).max();
    let holder = waits.iter().flat_map(|wait| &wait.waits_for).find(|one| one.why == WaitReason::Holds);
    row.state = holder.map(|one| if one.who.recalled { "recalled" } else { one.who.health.word() });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates are of the time between two reads; sizes are those of the last one.
    #[test]
    fn a_node_is_measured_between_two_reads() {
        let earlier = Scrape::parse("process_cpu_seconds_total 10\n");
        let now = "process_cpu_seconds_total 10.5\nprocess_resident_memory_bytes 1000\n\
                   lockkeeper_log_time_uncounted_seconds_total{node=\"1\"} 0.25\n";
        let mut row = NodeRow::default();
        measured(&mut row, &Scrape::parse(now), Some((2.0, &earlier)));
        assert_eq!((row.cpu_percent, row.memory_bytes, row.uncounted_ms), (Some(25), Some(1000), Some(250)));
        assert_eq!((row.commit_us, row.fsync_us), (None, None), "nothing was committed");
    }

    /// The times of a frame in JSON are whole milliseconds, as everywhere. Those of a disk are also in microseconds.
    #[test]
    fn times_are_shown_in_milliseconds() {
        let buckets = ["0.002\"} 0", "0.004\"} 100", "+Inf\"} 100"];
        let of = |name| buckets.map(|bucket| format!("lockkeeper_{name}_duration_seconds_bucket{{le=\"{bucket}\n"));
        let scrape = Scrape::parse(&[of("raft_commit"), of("wal_fsync")].concat().concat());
        let mut row = NodeRow::default();
        measured(&mut row, &scrape, None);
        let shown = serde_json::to_value(&row).expect("JSON");
        assert_eq!((&shown["commit_ms"], &shown["fsync_ms"]), (&3.into(), &3.into()), "{shown}");
        assert!((3_900..4_000).contains(&row.fsync_us.expect("recorded")), "{shown}");
    }
}
