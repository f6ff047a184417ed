//! Reads of all locks or sessions of a namespace: one at a time on a node, with a rest after each.

use metrics::Counter;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::{Instant as TokioInstant, sleep_until};

use crate::limits;
use crate::service::{ErrorCode, NotSent, REFUSALS, ServiceError};
use crate::telemetry::Series;

/// The turns of the scans of a node.
#[derive(Debug)]
pub(super) struct Scans {
    /// From when the next scan may begin.
    next: Mutex<TokioInstant>,
    /// Limits the scans that wait.
    waiting: Semaphore,
    /// Counts the reads without a place.
    overloaded: Counter,
}

/// The turn of one scan. At its end the next one rests for a multiple of the time that this one took.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    next: MutexGuard<'a, TokioInstant>,
    begun: TokioInstant,
    _waited: SemaphorePermit<'a>,
}

impl Scans {
    /// Creates the turns of this node.
    pub(super) fn new(node: u64) -> Self {
        let [name, help] = REFUSALS;
        let overloaded = Series::new(node).counter(name, help, &[("word", ErrorCode::Overloaded.row().text)]);
        let waiting = Semaphore::new(limits::SCANS_WAITING_MAX);
        Self { next: Mutex::new(TokioInstant::now()), waiting, overloaded }
    }

    /// Waits for its turn, in the order of the calls.
    ///
    /// # Errors
    /// Too many scans wait.
    pub(super) async fn turn(&self) -> Result<Scan<'_>, ServiceError> {
        let _waited = self.waiting.try_acquire().map_err(|_| self.overloaded())?;
        let next = self.next.lock().await;
        sleep_until(*next).await;
        Ok(Scan { next, begun: TokioInstant::now(), _waited })
    }

    /// Returns the error of a read without a place. Counts it, because the service does not see it.
    pub(super) fn overloaded(&self) -> ServiceError {
        self.overloaded.increment(1);
        ServiceError::not_sent(NotSent::Overloaded { pause_ms: limits::SUMMARY_MS })
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        *self.next = TokioInstant::now() + self.begun.elapsed() * limits::SCAN_REST_FACTOR;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use tokio::time::advance;

    use super::*;

    /// Only one scan runs. The next begins after a rest that is a multiple of the time that the last one took.
    #[tokio::test(start_paused = true)]
    async fn scans_rest() {
        let scans = Scans::new(1);
        let first = scans.turn().now_or_never().expect("the first begins at once").expect("a turn");
        assert!(scans.turn().now_or_never().is_none(), "two scans at a time");
        advance(Duration::from_millis(100)).await;
        drop(first);
        let ended = TokioInstant::now();
        let second = scans.turn().await.expect("a turn");
        // Timers count whole milliseconds.
        let rest = ended.elapsed().as_millis();
        assert!((300..=301).contains(&rest), "{rest} ms");
        drop(second);
        scans.turn().await.expect("a turn");
    }

    /// A scan that is given up, such as that of a browser that disconnects, leaves its turn. Too many are refused,
    /// and each of these counts, although the service does not see it.
    #[tokio::test(start_paused = true)]
    async fn waiting_scans_are_limited() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let scans = metrics::with_local_recorder(&recorder, || Scans::new(1));
        let counted = |times: usize| {
            let (text, series) =
                (recorder.handle().render(), r#"lockkeeper_refusals_total{node="1",word="overloaded"}"#);
            assert!(text.lines().any(|line| line == format!("{series} {times}")), "{times} in {text}");
        };
        let first = scans.turn().await.expect("a turn");
        let mut waiting: Vec<_> = (1..limits::SCANS_WAITING_MAX).map(|_| Box::pin(scans.turn())).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        counted(0);
        let refused = scans.turn().await.expect_err("too many");
        counted(1);
        assert!(matches!(refused, ServiceError::NotSent { why: NotSent::Overloaded { .. }, .. }), "{refused}");
        drop(waiting);
        drop(first);
        scans.turn().await.expect("a turn");
        counted(1);
    }
}
