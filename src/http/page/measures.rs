//! What the asked node measures of itself: how long grants waited, commits took and the disk needed, what it refused,
//! and the time that log time lacks.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant as TokioInstant;

use crate::http::scrape::{Render, Scrape};
use crate::limits;
use crate::mutex::Mutex;
use crate::service::REFUSALS;

/// The measured histograms: waits of grants in all namespaces, commits of this leader, and syncs of this node's disk.
const NAMES: [&str; 3] = [
    "lockkeeper_wait_duration_seconds",
    "lockkeeper_raft_commit_duration_seconds",
    "lockkeeper_wal_fsync_duration_seconds",
];

/// What the node answered to its callers in place of a result.
const REFUSED: &str = REFUSALS[0];

/// Reads the metrics of a node, at most once a second, and only while the page is shown.
pub(super) struct Measures {
    render: Render,
    node: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Metrics of the last minute, the oldest first.
    earlier: VecDeque<(TokioInstant, Scrape)>,
    last: Option<(TokioInstant, Measured)>,
}

/// The 99th percentiles of what was measured, in milliseconds, and what was counted. `None` if nothing was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) wait_ms: Option<f64>,
    pub(super) commit_ms: Option<f64>,
    pub(super) fsync_ms: Option<f64>,
    /// Refusals of this node.
    pub(super) refused: Option<u64>,
    /// Time that all this is of; `None` if it began with the node.
    pub(super) secs: Option<u64>,
}

impl Measures {
    pub(super) fn new(render: Render, node: u64) -> Self {
        Self { render, node, kept: Mutex::default() }
    }

    /// Returns what was measured in the last minute, or since the node started if the page was not shown before.
    pub(super) fn read(&self) -> Measured {
        let (mut kept, now) = (self.kept.lock(), TokioInstant::now());
        let newest = Duration::from_millis(limits::SUMMARY_MS);
        if let Some((_, measured)) = kept.last.filter(|(at, _)| now - *at < newest) {
            return measured;
        }
        let scrape = Scrape::parse(&(self.render)()).of_node(self.node);
        let scrape = scrape.only(&[&NAMES[..], &[REFUSED]].concat());
        let measured = kept.add(now, scrape);
        kept.last = Some((now, measured));
        measured
    }
}

impl Kept {
    fn add(&mut self, now: TokioInstant, scrape: Scrape) -> Measured {
        let window = Duration::from_millis(limits::GRANT_RATE_MS);
        while self.earlier.front().is_some_and(|(at, _)| window < now - *at) {
            self.earlier.pop_front();
        }
        let since = self.earlier.front();
        let p99 = |name| scrape.quantile(name, 0.99, since.map(|(_, scrape)| scrape)).map(|seconds| seconds * 1e3);
        let [wait_ms, commit_ms, fsync_ms] = NAMES.map(p99);
        let none = Scrape::default();
        let before = since.map_or(&none, |(_, scrape)| scrape);
        let measured = Measured {
            wait_ms,
            commit_ms,
            fsync_ms,
            refused: scrape.grown(REFUSED, before).map(|count| count as u64),
            secs: since.map(|(at, _)| (now - *at).as_secs()),
        };
        let apart = window / limits::SCRAPES_KEPT;
        if self.earlier.back().is_none_or(|(at, _)| apart <= now - *at) {
            self.earlier.push_back((now, scrape));
        }
        measured
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::advance;

    use super::*;

    /// Metrics after some fast syncs, and as many slow ones.
    fn text(fast: u64, slow: u64) -> String {
        let name = NAMES[2];
        let all = fast + slow;
        format!(
            "{name}_bucket{{node=\"1\",le=\"0.001\"}} {fast}\n{name}_bucket{{node=\"1\",le=\"0.1\"}} {all}\n\
             {name}_bucket{{node=\"1\",le=\"+Inf\"}} {all}\n{name}_bucket{{node=\"2\",le=\"+Inf\"}} 9\nother 1\n\
             {REFUSED}{{node=\"1\",word=\"deadlock\"}} {slow}\n{REFUSED}{{node=\"1\",word=\"held\"}} 7\n",
        )
    }

    /// The first look measures since the start, later ones the last minute. Looks of one second share a measurement.
    #[tokio::test(start_paused = true)]
    async fn the_last_minute_is_measured() {
        let (slow, scrapes) = (Arc::new(AtomicU64::new(500)), Arc::new(AtomicU64::new(0)));
        let render: Render = Arc::new({
            let (slow, scrapes) = (Arc::clone(&slow), Arc::clone(&scrapes));
            move || text(1_000 * (1 + scrapes.fetch_add(1, Ordering::Relaxed)), slow.load(Ordering::Relaxed))
        });
        let measures = Measures::new(render, 1);
        let first = measures.read();
        assert_eq!((first.secs, first.wait_ms, first.commit_ms), (None, None, None));
        assert_eq!(first.refused, Some(507));
        assert!(first.fsync_ms.is_some_and(|ms| 50.0 < ms), "{first:?}");
        assert_eq!(measures.read(), first);
        assert_eq!(scrapes.load(Ordering::Relaxed), 1);
        advance(Duration::from_secs(5)).await;
        let second = measures.read();
        assert_eq!((second.secs, second.refused), (Some(5), Some(0)));
        assert!(second.fsync_ms.is_some_and(|ms| ms < 1.0), "the slow syncs are older: {second:?}");
        slow.fetch_add(500, Ordering::Relaxed);
        advance(Duration::from_secs(30)).await;
        let third = measures.read();
        assert!(third.fsync_ms.is_some_and(|ms| 50.0 < ms), "a slow sync of the last minute");
        assert_eq!(third.refused, Some(500));
        advance(Duration::from_secs(100)).await;
        let later = measures.read();
        assert_eq!(later.secs, None, "no metrics of the last minute are known");
    }
}
