//! The batching proposer: puts all waiting commands and renewals into one log entry, and advances log time.
//!
//! All calls of an entry share one fsync and one consensus round; a single command is proposed at once. While an entry
//! is being committed, the commands of the next one gather. The next entry leaves at once if only a few callers wait
//! for the entry before it.

mod batch_window;
mod entry_size;
pub(super) mod lane;
mod log_clock;
pub(super) mod queue;
pub(super) mod replies;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant as TokioInstant;

use super::core::Core;
use crate::clock::Instant;
use crate::limits;
use crate::model::{Command, Entry, LogTime, Principal, Submission};
use crate::raft::{Listener, ProposeError, Submitted};
use crate::service::{NotSent, ServiceError, Source};
use batch_window::BatchWindow;
use lane::{ReplySender, Waiting};
use queue::{Batch, Now};
use replies::BatchReplies;

const MS: Duration = Duration::from_millis(1);

/// The wait while nothing is due.
const IDLE: Duration = Duration::from_millis(limits::RETRY_MS_MAX);

/// Runs until the node stops: collects, stamps and proposes commands while this node leads.
pub(in crate::node) async fn run(core: Arc<Core>) {
    let (mut views, mut stop) = (core.consensus.watch(), core.stop.subscribe());
    let mut in_flight = EntriesInFlight::default();
    let mut open_in = None;
    let mut last = TokioInstant::now();
    let mut window = BatchWindow::none(last);
    while !*stop.borrow() {
        // The borrow of the view ends here, because the hint below borrows it again.
        let (led, leader) = {
            let view = views.borrow_and_update();
            (view.own_term_applied.then_some(view.term), view.leader)
        };
        match led {
            None => core.queue.close(core.hint(leader)),
            Some(term) if open_in != led => begin_term(&core, term),
            Some(_) => {}
        }
        open_in = led;
        let pause = led.map_or(IDLE, |_| wait_for_next(&core, &in_flight, last, window));
        if let Some(term) = led.filter(|_| pause.is_zero()) {
            last = TokioInstant::now();
            if let Some(batch) = core.queue.take(core.now()) {
                let entry = EntryInFlight::submit(&core, term, batch).await;
                in_flight.push(entry, &core);
            }
            continue;
        }
        tokio::select! {
            biased;
            Some(callers) = in_flight.next_applied() => {
                let now = TokioInstant::now();
                window = BatchWindow::after(callers.served(), callers.others_waiting(), now - last, now);
            }
            changed = views.changed() => if changed.is_err() { break },
            () = core.queue.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
            stopped = stop.changed() => if stopped.is_err() { break },
        }
    }
    core.queue.end();
    while in_flight.next_applied().await.is_some() {}
}

/// Opens the queue in a term in which this node leads and has applied an entry: log time starts.
fn begin_term(core: &Core, term: u64) {
    let stamp = core.consensus.machine(|machine| machine.now());
    core.queue.close(None);
    core.queue.open(stamp, core.clock.now(), core.election_max);
    core.leads_since_now(term);
    core.configure();
    core.submit_internal(Command::LeaderlessGap { gap_ms: core.leaderless_ms() });
}

/// Returns how long the proposer waits at most for a notification before it looks again; zero if the next entry is
/// proposed now. Renewals of sessions gather for [`limits::RENEWALS_APART_MS`] after the last entry: they are not
/// urgent, and many sessions would keep an idle cluster busy. Acquires that would only join a queue gather for
/// [`limits::QUEUERS_APART_MS`].
fn wait_for_next(core: &Core, in_flight: &EntriesInFlight, last: TokioInstant, window: BatchWindow) -> Duration {
    if !in_flight.may_propose() || core.queue.is_paused() {
        core.queue.waiting(usize::MAX, false);
        return IDLE;
    }
    let now = TokioInstant::now();
    let wanted = window.wanted(now);
    let since = now - last;
    let sessions_gather = Duration::from_millis(limits::RENEWALS_APART_MS).saturating_sub(since);
    let waiting = core.queue.waiting(wanted, !sessions_gather.is_zero());
    if wanted <= waiting {
        return match coalescing_delay(wanted, since, || all_would_queue(core, in_flight)) {
            None => Duration::ZERO,
            Some(delay) => wait_for_stamp(core, in_flight.entries.is_empty(), since).min(delay),
        };
    }
    if wanted != 1 {
        return window.left(now);
    }
    let wait = wait_for_stamp(core, in_flight.entries.is_empty(), since);
    if sessions_gather.is_zero() { wait } else { wait.min(sessions_gather) }
}

/// Returns how long the waiting commands may wait for more, if the last entry left `since` ago; `None` if they leave at
/// once.
fn coalescing_delay(wanted: usize, since: Duration, all_would_queue: impl FnOnce() -> bool) -> Option<Duration> {
    let left = Duration::from_millis(limits::QUEUERS_APART_MS).saturating_sub(since);
    (wanted == 1 && !left.is_zero() && all_would_queue()).then_some(left)
}

/// Whether the waiting calls are only a few acquires, each of which would join the queue of its lock even after the
/// entries in flight, which may free locks.
fn all_would_queue(core: &Core, in_flight: &EntriesInFlight) -> bool {
    let locks_may_be_freed = !in_flight.entries.is_empty();
    core.consensus.machine(|machine| {
        core.queue.has_only(limits::QUEUERS_LOOKED_AT_MAX, |submission| {
            let Command::Acquire(acquire) = &submission.command else { return false };
            machine.would_queue(acquire, locks_may_be_freed)
        })
    })
}

/// Returns how long the next stamp can wait; zero if it is due. While any deadline exists, a stamp is proposed at least
/// every [`limits::TICK_MS_MAX`], and at once when a deadline has passed.
fn wait_for_stamp(core: &Core, none_in_flight: bool, since: Duration) -> Duration {
    let (deadline, due) = core.consensus.machine(|machine| (machine.next_deadline(), machine.is_due()));
    let Some(deadline) = deadline else { return IDLE };
    if due && none_in_flight {
        return Duration::ZERO;
    }
    let now = core.queue.log_time().unwrap_or(LogTime(0));
    let tick = Duration::from_millis(limits::TICK_MS_MAX);
    let until = Duration::from_millis(deadline.first_past().ms_since(now).max(1));
    let pause = tick.min(until);
    if pause <= since && none_in_flight { Duration::ZERO } else { pause.saturating_sub(since).max(MS) }
}

/// The entries that are proposed and not applied yet.
#[derive(Default)]
struct EntriesInFlight {
    entries: FuturesUnordered<BoxFuture<'static, Arc<BatchReplies>>>,
    /// Number of callers of all entries.
    callers: usize,
}

impl EntriesInFlight {
    /// Whether another entry may be proposed: yes while only a few callers wait for the first one, so that later
    /// callers need not wait for it.
    fn may_propose(&self) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < limits::ENTRIES_IN_FLIGHT_MAX && self.callers <= limits::FEW_IN_FLIGHT)
    }

    fn push(&mut self, entry: EntryInFlight, core: &Arc<Core>) {
        self.callers += entry.callers.served();
        self.entries.push(Box::pin(entry.wait_until_applied(Arc::clone(core))));
    }

    /// Waits until an entry has been applied or has failed, and returns its callers. `None` if no entry is in flight.
    async fn next_applied(&mut self) -> Option<Arc<BatchReplies>> {
        let applied = self.entries.next().await?;
        self.callers -= applied.served();
        Some(applied)
    }
}

/// A proposed batch with its callers.
struct EntryInFlight {
    callers: Arc<BatchReplies>,
    submitted: Result<Submitted, ProposeError>,
    begun: Instant,
}

impl EntryInFlight {
    /// Stamps and proposes the batch. Entries are appended in the order of these calls, or not at all.
    async fn submit(core: &Core, term: u64, batch: Batch) -> Self {
        let Batch { stamp, renewals, commands } = batch;
        let (renewals, renewers) = unzip(renewals);
        let (mut commands, submitters) = unzip(commands);
        if commands.is_empty() && renewals.is_empty() {
            commands.push(Submission { principal: Principal::default(), since: None, command: Command::Tick });
        }
        let (queue, decided) = (Arc::clone(&core.queue), Arc::clone(&core.shared.decided));
        let callers = Arc::new(BatchReplies::new(core.replies.clone(), queue, decided, renewers, submitters));
        let listener = Some(Arc::clone(&callers) as Arc<dyn Listener>);
        let digest = core.agreed.lock().take();
        let entry = Entry { stamp, wall: core.clock.wall(), renewals, commands, digest };
        let begun = core.clock.now();
        Self { callers, submitted: core.consensus.submit(term, entry, listener).await, begun }
    }

    /// Waits until the entry is applied or has failed, and sends the replies that were not sent while it was applied.
    async fn wait_until_applied(self, core: Arc<Core>) -> Arc<BatchReplies> {
        let outcome = match self.submitted {
            Ok(submitted) => submitted.applied().await,
            Err(error) => Err(error),
        };
        core.shared.metrics.commit_seconds.record(core.clock.now().since(self.begun).as_secs_f64());
        match outcome {
            Ok(applied) => self.callers.reply_applied(&applied),
            Err(error) => self.callers.reply_error(&core.service_error(error)),
        }
        self.callers
    }
}

fn unzip<T>(waiting: Vec<Waiting<T>>) -> (Vec<T>, Vec<ReplySender>) {
    waiting.into_iter().map(|waiting| (waiting.what, waiting.answer)).unzip()
}

impl Core {
    /// Returns the inputs for a read of the log clock.
    pub(in crate::node) fn now(&self) -> Now {
        let (applied, timed) = self.consensus.machine(|machine| (machine.now(), machine.next_deadline().is_some()));
        Now { instant: self.clock.now(), applied, timed }
    }

    /// Returns the error for the callers of a failed entry.
    fn service_error(&self, error: ProposeError) -> ServiceError {
        match error {
            ProposeError::NotSent { leader } => {
                let leader = self.hint(leader);
                ServiceError::NotSent { why: NotSent::NotLeader, leader }
            }
            ProposeError::Unknown(why) => ServiceError::Unknown { why, leader: None },
            ProposeError::Stopped => ServiceError::Stopping,
        }
    }

    /// Gives a new cluster its settings and its id. Does nothing if the state has them. The queue may drop the command,
    /// so the leader calls this until the state has them: without an id, no node answers a client.
    pub(in crate::node) fn configure(&self) {
        if self.consensus.machine(|machine| machine.settings().is_none()) {
            // The id is random and does not depend on the config: a cluster that is founded again is another cluster.
            let (settings, cluster_id) = (self.settings, self.clock.random_u128());
            self.submit_internal(Command::Configure { settings, cluster_id });
        }
    }

    /// Puts a command of the node itself into the next entry, and ignores the reply.
    pub(in crate::node) fn submit_internal(&self, command: Command) {
        if let Err(refusal) = self.admits(&command) {
            tracing::debug!(node = self.id, %refusal, "not proposed");
            return;
        }
        let (answer, _) = tokio::sync::oneshot::channel();
        let submission = Submission { principal: Principal::default(), since: None, command };
        // A queue that is full, or whose leader loses its followers, drops these commands: the leader repeats those
        // that do more than report a state.
        self.queue.command(Source::InProcess, submission, answer).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Acquires that would only queue wait for the rest of the interval after an entry. Other commands do not, and
    /// neither do commands that arrive later or complete a batch.
    #[test]
    fn acquires_that_only_queue_wait_briefly() {
        let (all, some) = (Duration::from_millis(limits::QUEUERS_APART_MS), Duration::from_micros(300));
        assert_eq!(coalescing_delay(1, some, || true), Some(all - some));
        assert_eq!(coalescing_delay(1, some, || false), None);
        assert_eq!(coalescing_delay(1, all, || true), None);
        assert_eq!(coalescing_delay(48, some, || true), None);
    }

    /// A second entry may be in flight behind a small one, and no third.
    #[tokio::test]
    async fn a_second_entry_may_follow_a_small_one() {
        let mut in_flight = EntriesInFlight::default();
        assert!(in_flight.may_propose());
        in_flight.entries.push(Box::pin(pending()));
        in_flight.callers = limits::FEW_IN_FLIGHT;
        assert!(in_flight.may_propose());
        in_flight.callers += 1;
        assert!(!in_flight.may_propose());
        in_flight.callers = 0;
        in_flight.entries.push(Box::pin(pending()));
        assert!(!in_flight.may_propose());
    }
}
