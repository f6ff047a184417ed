//! Measures from time to time what is not counted as it happens.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;
use crate::limits;
use crate::machine::NamespaceSizes;
use crate::node::Node;
use crate::node::core::Core;
use crate::storage::DiskUse;

/// Measures once a second until the node closes. What needs a search is measured every
/// [`limits::METRICS_SEARCH_MS`].
pub(in crate::node) async fn run(node: Node) {
    let mut searched: Option<Instant> = None;
    let mut samples = VecDeque::new();
    loop {
        let now = node.core.clock.now();
        node.core.measure(node.tasks.alive(), node.leads());
        node.core.measure_hour(&mut samples, now);
        node.core.measure_namespaces().await;
        if searched.is_none_or(|at| Duration::from_millis(limits::METRICS_SEARCH_MS) <= now.since(at)) {
            searched = Some(now);
            node.core.measure_waits(node.leads()).await;
            node.core.measure_disk().await;
        }
        let pause = Duration::from_millis(limits::WATCH_MS);
        if tokio::time::timeout(pause, node.core.stopped()).await.is_ok() {
            return;
        }
    }
}

/// Returns by how much the time that was not counted has grown within the last hour, or since the first sample. Samples
/// are kept once a minute, so the result covers up to a minute more than the hour.
fn grown(samples: &mut VecDeque<(Instant, Duration)>, now: Instant, uncounted: Duration) -> Duration {
    let (pause, hour) = (limits::METRICS_SAMPLE_MS, limits::METRICS_HOUR_MS);
    if samples.back().is_none_or(|(at, _)| Duration::from_millis(pause) <= now.since(*at)) {
        samples.push_back((now, uncounted));
    }
    // The first sample becomes the newest one that is an hour old.
    while samples.get(1).is_some_and(|(at, _)| Duration::from_millis(hour) <= now.since(*at)) {
        samples.pop_front();
    }
    samples.front().map_or(Duration::ZERO, |(_, first)| uncounted.saturating_sub(*first))
}

impl Core {
    /// Records what is known without a search.
    fn measure(&self, tasks: usize, leads: bool) {
        let metrics = &self.shared.metrics;
        let (skipped, history) =
            self.consensus.machine(|machine| (machine.deadlock_checks_skipped(), machine.history_bytes()));
        metrics.deadlock_checks_skipped.absolute(skipped);
        metrics.history_bytes.set(history as f64);
        metrics.tasks.set(tasks as f64);
        metrics.wal_bytes.set(self.consensus.log_bytes() as f64);
        metrics.snapshot_bytes.set(self.consensus.snapshot_bytes().unwrap_or_default() as f64);
        metrics.proposals_waiting.set(self.queue.len() as f64);
        metrics.uncounted_seconds.set(self.queue.all_uncounted().as_secs_f64());
        let view = self.consensus.watch().borrow().clone();
        metrics.applied.set(view.applied.unwrap_or_default() as f64);
        metrics.peers.update(self.id, &view, leads);
    }

    /// Records what happened in the last hour.
    fn measure_hour(&self, samples: &mut VecDeque<(Instant, Duration)>, now: Instant) {
        let metrics = &self.shared.metrics;
        let changes = metrics.events.leader_changes_last_hour(self.clock.wall(), now);
        metrics.leader_changes_last_hour.set(changes as f64);
        metrics.uncounted_last_hour.set(grown(samples, now, self.queue.all_uncounted()).as_secs_f64());
    }

    /// Records the sizes of all namespaces. Looks at a limited number of them at a time.
    async fn measure_namespaces(&self) {
        let (mut sums, mut after) = (Vec::new(), None);
        loop {
            let rows = limits::METRICS_SEARCH_ROWS;
            let sizes = self.consensus.machine(|machine| machine.sizes_after(after.as_ref(), rows));
            after = sizes.last().map(|(namespace, _)| namespace.clone());
            let more = sizes.len() == rows;
            self.shared.metrics.events.namespaces.lock().add(&mut sums, sizes, NamespaceSizes::add);
            if !more {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.shared.metrics.events.namespaces.lock().record(&sums);
    }

    /// Records the longest waits, none unless this node leads.
    async fn measure_waits(&self, leads: bool) {
        let longest = if leads { self.longest_waits().await } else { Vec::new() };
        self.shared.metrics.events.namespaces.lock().record_waits(&longest);
    }

    /// Searches the longest wait of each namespace, in milliseconds, by the place of its series. Looks at a limited
    /// number of locks at a time.
    async fn longest_waits(&self) -> Vec<u64> {
        let (mut longest, mut after) = (Vec::new(), None);
        loop {
            let rows = limits::METRICS_SEARCH_ROWS;
            let waits = self.consensus.machine(|machine| machine.waits_after(after.as_ref(), rows));
            let longer = |longest: &mut u64, ms: &u64| *longest = (*longest).max(*ms);
            self.shared.metrics.events.namespaces.lock().add(&mut longest, waits.longest, longer);
            after = waits.more_after;
            if after.is_none() {
                return longest;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Records the sizes of the node's files and the free space. A node in memory has none.
    async fn measure_disk(&self) {
        let Some(data) = self.data.clone() else { return };
        let measured = tokio::task::spawn_blocking(move || DiskUse::of(&data)).await;
        match measured {
            Ok(Ok(DiskUse { mirror_bytes, free_bytes })) => {
                self.shared.metrics.mirror_bytes.set(mirror_bytes as f64);
                self.shared.metrics.free_bytes.set(free_bytes as f64);
            }
            Ok(Err(error)) => tracing::debug!(node = self.id, %error, "the data directory cannot be measured"),
            // The runtime ends.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last hour has what was counted since the sampler began, until it is more than an hour ago. The number of
    /// samples is limited.
    #[test]
    fn the_last_hour_forgets_what_is_older() {
        const MINUTE_SECS: u64 = 60;
        let mut samples = VecDeque::new();
        let mut at = |secs: u64, uncounted_ms: u64| {
            let (now, uncounted) = (Instant::from_nanos(secs * 1_000_000_000), Duration::from_millis(uncounted_ms));
            let grown = grown(&mut samples, now, uncounted);
            assert!(samples.len() <= 62, "{} samples", samples.len());
            grown.as_millis()
        };
        assert_eq!(at(0, 500), 0, "counted before the sampler began");
        assert_eq!(at(1, 600), 100);
        for minute in 1..=60 {
            assert_eq!(at(minute * MINUTE_SECS, 600), 100, "minute {minute}");
        }
        assert_eq!(at(61 * MINUTE_SECS - 1, 800), 300);
        assert_eq!(at(61 * MINUTE_SECS, 800), 200);
        for minute in 62..=120 {
            assert_eq!(at(minute * MINUTE_SECS, 800), 200, "minute {minute}");
        }
        assert_eq!(at(121 * MINUTE_SECS, 800), 0);
    }
}
