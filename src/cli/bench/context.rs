//! The parts that every workload uses, and the progress bar on a terminal while it runs.

use std::time::Duration;

use indicatif::ProgressBar;

use super::options::BenchOptions;
use super::pace::Span;
use super::usage::{Look, Servers};
use crate::cli::output::Output;
use crate::client::Client;
use crate::clock::{Clock, Instant, SystemClock, millis};
use crate::limits;
use crate::service::LockService;

/// The parts that every workload uses.
pub(super) struct Bench<'a, S: LockService> {
    pub(super) options: &'a BenchOptions,
    pub(super) output: &'a Output,
    /// The clients, one for each connection; never empty.
    pub(super) clients: Vec<Client<S>>,
    pub(super) servers: Servers,
    /// Prefix of all lock names of the run, which no other client uses.
    pub(super) name: String,
}

impl<S: LockService> Bench<'_, S> {
    /// Returns the times of a run that begins now.
    pub(super) fn span(&self) -> Span {
        Span::from_now(self.options.warm_up, Duration::from_secs(u64::from(self.options.secs)))
    }

    /// Shows the progress until the end of the span. Returns the usage of the servers when counting began, and at the
    /// end.
    pub(super) async fn watch(&self, span: Span, progress: impl Fn() -> String) -> (Look, Look) {
        let bar =
            self.output.progress("{prefix} [{bar:40}] {elapsed}  {msg}").with_prefix(self.options.workload.name());
        bar.set_length(millis(span.end.since(span.began)));
        self.draw_until(span.counts_from, span, &bar, &progress).await;
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
            bar.set_position(millis(now.since(span.began)));
            bar.set_message(progress());
            if until <= now {
                return;
            }
            let tick = Duration::from_millis(limits::PROGRESS_TICK_MS);
            tokio::time::sleep(until.since(now).min(tick)).await;
        }
    }
}
