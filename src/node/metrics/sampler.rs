//! Measures from time to time what is not counted as it happens.

use std::time::Duration;

use super::namespaces::{LongestWaits, Tally};
use crate::clock::Instant;
use crate::limits;
use crate::node::Node;
use crate::node::core::Core;
use crate::storage::DiskUse;

/// Measures once a second until the node closes. What needs a search is measured every
/// [`limits::METRICS_SEARCH_MS`].
pub(in crate::node) async fn run(node: Node) {
    let mut searched: Option<Instant> = None;
    loop {
        let now = node.core.clock.now();
        node.core.measure(node.tasks.alive(), node.leads());
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

    /// Records the sizes of all namespaces. Looks at a limited number of them at a time.
    async fn measure_namespaces(&self) {
        let (mut tally, mut after) = (Tally::default(), None);
        loop {
            let rows = limits::METRICS_SEARCH_ROWS;
            let sizes = self.consensus.machine(|machine| machine.sizes_after(after.as_ref(), rows));
            after = sizes.last().map(|(namespace, _)| namespace.clone());
            let more = sizes.len() == rows;
            self.shared.metrics.events.namespaces.lock().add(&mut tally, sizes);
            if !more {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.shared.metrics.events.namespaces.lock().record(&tally);
    }

    /// Records the longest waits, none unless this node leads.
    async fn measure_waits(&self, leads: bool) {
        let longest = if leads { self.longest_waits().await } else { LongestWaits::default() };
        self.shared.metrics.events.namespaces.lock().record_waits(&longest);
    }

    /// Searches the longest waits. Looks at a limited number of locks at a time.
    async fn longest_waits(&self) -> LongestWaits {
        let (mut longest, mut after) = (LongestWaits::default(), None);
        loop {
            let rows = limits::METRICS_SEARCH_ROWS;
            let waits = self.consensus.machine(|machine| machine.waits_after(after.as_ref(), rows));
            self.shared.metrics.events.namespaces.lock().add_waits(&mut longest, waits.longest);
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
