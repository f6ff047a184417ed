//! A progress bar on a terminal while a run lasts.

use std::time::Duration;

use indicatif::ProgressBar;

use super::context::Bench;
use super::pace::Span;
use super::usage::Look;
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;
use crate::service::LockService;

impl<S: LockService> Bench<'_, S> {
    /// Shows the progress until the end of the span. Returns the usage of the servers when counting began, and at the
    /// end.
    pub(super) async fn watch(&self, span: Span, progress: impl Fn() -> String) -> (Look, Look) {
        let bar =
            self.output.progress("{prefix} [{bar:40}] {elapsed}  {msg}").with_prefix(self.options.workload.name());
        bar.set_length(span.end.since(span.began).as_millis().try_into().unwrap_or(u64::MAX));
        self.draw_until(span.counted, span, &bar, &progress).await;
        let first = self.look().await;
        self.draw_until(span.end, span, &bar, &progress).await;
        let last = self.look().await;
        bar.finish_and_clear();
        (first, last)
    }

    /// Reads the current usage of the servers, and the newest log entry.
    pub(super) async fn look(&self) -> Look {
        let mut look = self.servers.look();
        look.applied = self.clients[0].status().await.ok().map(|status| status.applied);
        look
    }

    async fn draw_until(&self, until: Instant, span: Span, bar: &ProgressBar, progress: &impl Fn() -> String) {
        let clock = SystemClock::new();
        loop {
            let now = clock.now();
            bar.set_position(now.since(span.began).as_millis().try_into().unwrap_or(u64::MAX));
            bar.set_message(progress());
            if until <= now {
                return;
            }
            let tick = Duration::from_millis(limits::PROGRESS_TICK_MS);
            tokio::time::sleep(until.since(now).min(tick)).await;
        }
    }
}
