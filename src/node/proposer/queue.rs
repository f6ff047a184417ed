//! The queue of the proposer: renewals first, commands behind them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::entry_size;
use super::lane::{Lane, ReplySender, Waiting};
use super::log_clock::LogClock;
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{LogTime, Renewal, RenewalTarget, Reply, SessionId, Submission};
use crate::mutex::Mutex;
use crate::node::validate;
use crate::service::{LeaderHint, NotSent, RenewalCall, ServiceError, Source};

/// The contents of one entry.
#[derive(Debug, Default)]
pub(in crate::node) struct Batch {
    pub(in crate::node) stamp: LogTime,
    /// Renewals, oldest first.
    pub(in crate::node) renewals: Vec<Waiting<Renewal>>,
    /// Commands, oldest first.
    pub(in crate::node) commands: Vec<Waiting<Submission>>,
}

/// The bounded queue of the proposer. If it is full, it refuses calls, and the error names a pause before a retry.
#[derive(Debug, Default)]
pub(in crate::node) struct ProposalQueue {
    state: Mutex<QueueState>,
    /// Notified when enough calls wait.
    pub(in crate::node) wake: Notify,
    /// Notified when commands wait for the next leader.
    pub(in crate::node) unsent: Notify,
    /// Whether the queue accepts calls: true once this node leads and has applied an entry of its own term.
    opened: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Log clock; `None` unless this node leads and has applied an entry of its own term.
    clock: Option<LogClock>,
    /// Real time that the clocks of earlier terms did not count.
    uncounted_before: Duration,
    /// Whether leadership is being transferred. Then the proposer takes no calls out.
    paused: bool,
    renewals: Lane<Renewal>,
    /// Most renewals in an entry, if lower than the limit.
    renewals_an_entry_max: Option<usize>,
    /// Number of queued renewals of sessions.
    sessions: usize,
    /// Number of queued renewals of each session.
    of_session: HashMap<SessionId, usize>,
    commands: Lane<Submission>,
    /// Commands that waited when this node stopped leading during a transfer.
    unsent: Vec<Waiting<Submission>>,
    /// Number of waiting calls at which the proposer is woken: each wake-up costs a switch between threads.
    wake_at: usize,
    /// Whether renewals of sessions gather: then they do not count toward `wake_at`.
    sessions_gather: bool,
}

impl QueueState {
    fn waiting(&self) -> usize {
        let gathering = if self.sessions_gather { self.sessions } else { 0 };
        self.renewals.len() - gathering + self.commands.len()
    }

    /// Ends the log clock of this term, if it has one.
    fn stop_clock(&mut self) {
        self.uncounted_before += self.clock.take().map_or(Duration::ZERO, |clock| clock.all_uncounted());
    }

    /// Counts queued renewals of sessions, or none if a session would have too many. Returns whether they are counted.
    fn count_sessions(&mut self, calls: &[RenewalCall]) -> bool {
        for (counted, call) in calls.iter().enumerate() {
            let Some(session) = renewed_session(&call.target) else { continue };
            let waiting = self.of_session.entry(session).or_default();
            if *waiting == limits::RENEWALS_OF_A_SESSION_MAX {
                calls[..counted].iter().for_each(|call| self.uncount_session(&call.target));
                return false;
            }
            *waiting += 1;
            self.sessions += 1;
        }
        true
    }

    fn uncount_session(&mut self, target: &RenewalTarget) {
        let Some(session) = renewed_session(target) else { return };
        self.sessions -= 1;
        if let Entry::Occupied(mut waiting) = self.of_session.entry(session) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
            }
        }
    }
}

/// Returns the session that a renewal renews; `None` if it renews a lease.
fn renewed_session(target: &RenewalTarget) -> Option<SessionId> {
    match target {
        RenewalTarget::Session(session) => Some(*session),
        RenewalTarget::Lease { .. } | RenewalTarget::Hold { .. } => None,
    }
}

/// Inputs for a read of the log clock.
#[derive(Debug, Clone, Copy)]
pub(in crate::node) struct Now {
    /// Time of the node's clock.
    pub(in crate::node) instant: Instant,
    /// Newest applied stamp.
    pub(in crate::node) applied: LogTime,
    /// Whether any deadline exists.
    pub(in crate::node) timed: bool,
}

impl ProposalQueue {
    /// Opens the queue when this node starts to lead: starts log time and accepts calls.
    pub(in crate::node) fn open(&self, stamp: LogTime, now: Instant, election_max: Duration) {
        let mut state = self.state.lock();
        state.stop_clock();
        state.clock = Some(LogClock::start(stamp, now, election_max));
        state.paused = false;
        self.opened.send_replace(true);
    }

    /// Limits the renewals in one entry from now on.
    pub(in crate::node) fn set_renewals_an_entry_max(&self, most: usize) {
        self.state.lock().renewals_an_entry_max = Some(most);
    }

    /// Returns a receiver that shows whether the queue is open.
    pub(in crate::node) fn opened(&self) -> watch::Receiver<bool> {
        self.opened.subscribe()
    }

    pub(in crate::node) fn is_open(&self) -> bool {
        *self.opened.borrow()
    }

    /// Closes the queue when this node does not lead: stops log time and rejects the waiting calls.
    pub(in crate::node) fn close(&self, leader: Option<LeaderHint>) {
        let mut state = self.state.lock();
        state.stop_clock();
        self.opened.send_replace(false);
        drop(state);
        self.reject_all(leader);
    }

    /// Closes the queue when the node stops. Rejects all waiting calls, because the node can forward none of them any
    /// more.
    pub(in crate::node) fn end(&self) {
        self.state.lock().paused = false;
        self.close(None);
        for Waiting { answer, .. } in self.take_unsent() {
            not_sent(answer, None);
        }
    }

    /// Fails the queued calls as not sent, because this node lost its leadership or its followers. During a transfer
    /// the next leader is known soon, so the queue keeps the commands for it, and their callers need not send them
    /// again. Commands of the node itself fail: only the leader may propose them.
    pub(in crate::node) fn reject_all(&self, leader: Option<LeaderHint>) {
        let mut state = self.state.lock();
        let (renewals, mut commands) = (state.renewals.take_all(), state.commands.take_all());
        state.sessions = 0;
        state.of_session.clear();
        if state.paused {
            state.unsent.extend(commands.extract_if(.., |waiting| !validate::is_internal(&waiting.what.command)));
            self.unsent.notify_one();
        }
        drop(state);
        renewals.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
        commands.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
    }

    /// Takes out the commands that wait for the next leader.
    pub(in crate::node) fn take_unsent(&self) -> Vec<Waiting<Submission>> {
        std::mem::take(&mut self.state.lock().unsent)
    }

    /// Pauses the queue during a transfer of leadership: stops log time and keeps the queued calls until the next
    /// leader is known.
    pub(in crate::node) fn pause(&self) {
        let mut state = self.state.lock();
        state.paused = true;
        if let Some(clock) = state.clock.as_mut() {
            clock.stop();
        }
    }

    /// Resumes the queue and log time after a failed transfer.
    pub(in crate::node) fn resume(&self, now: Instant) {
        let mut state = self.state.lock();
        state.paused = false;
        if let Some(clock) = state.clock.as_mut() {
            clock.resume(now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Whether leadership is being transferred.
    pub(in crate::node) fn is_paused(&self) -> bool {
        self.state.lock().paused
    }

    /// Queues a command. Refused if this node does not lead, or if the queue has no place for the source of the
    /// command.
    pub(in crate::node) fn command(
        &self,
        source: Source,
        submission: Submission,
        answer: ReplySender,
    ) -> Result<(), NotSent> {
        let mut state = self.state.lock();
        if state.clock.is_none() {
            return Err(NotSent::NoLeader);
        }
        if !state.commands.admits(&source, 1) {
            return Err(NotSent::OVERLOADED);
        }
        let renewals_before = state.renewals.received();
        state.commands.push(Waiting { what: submission, source, renewals_before, answer });
        self.wake_if_enough(&state);
        Ok(())
    }

    /// Queues all renewals or none, with the log time of their receipt. `now` is called while the queue is locked.
    pub(in crate::node) fn renewals(
        &self,
        source: Source,
        calls: Vec<RenewalCall>,
        now: impl FnOnce() -> Now,
    ) -> Result<Vec<oneshot::Receiver<Result<Reply, ServiceError>>>, NotSent> {
        let mut state = self.state.lock();
        if state.clock.is_some() && !(state.renewals.admits(&source, calls.len()) && state.count_sessions(&calls)) {
            return Err(NotSent::OVERLOADED);
        }
        let Some(clock) = state.clock.as_mut() else { return Err(NotSent::NoLeader) };
        let now = now();
        let receipt = clock.read(now.instant, now.applied, now.timed);
        let mut waiting = Vec::with_capacity(calls.len());
        for call in calls {
            let (answer, reply) = oneshot::channel();
            let renewal = Renewal { target: call.target, attempt: call.attempt, receipt };
            let renewals_before = state.renewals.received();
            state.renewals.push(Waiting { what: renewal, source: source.clone(), renewals_before, answer });
            waiting.push(reply);
        }
        self.wake_if_enough(&state);
        Ok(waiting)
    }

    fn wake_if_enough(&self, state: &QueueState) {
        if state.wake_at <= state.waiting() {
            self.wake.notify_one();
        }
    }

    /// Returns how many calls wait, and wakes the proposer when `wanted` wait. While sessions gather, their renewals do
    /// not count.
    pub(in crate::node) fn waiting(&self, wanted: usize, sessions_gather: bool) -> usize {
        let mut state = self.state.lock();
        state.wake_at = wanted;
        state.sessions_gather = sessions_gather;
        state.waiting()
    }

    /// Whether the waiting calls are at most `at_most` commands, all of which match. Renewals that gather do not count.
    pub(in crate::node) fn has_only(&self, at_most: usize, matches: impl Fn(&Submission) -> bool) -> bool {
        let state = self.state.lock();
        let commands = &state.commands;
        state.waiting() == commands.len()
            && commands.len() <= at_most
            && commands.iter().all(|waiting| matches(&waiting.what))
    }

    /// Takes the calls for one entry out of the queue. The stamp of the entry is the current log time, but no later
    /// than the receipt of a renewal that did not fit. Commands that were received after that renewal wait with it: an
    /// entry never has a stamp from before the receipt of one of its calls, because clients count their leases from
    /// the sending of the call. `None` while this node does not lead.
    pub(in crate::node) fn take(&self, now: Now) -> Option<Batch> {
        let mut state = self.state.lock();
        let stamp = state.clock.as_mut()?.read(now.instant, now.applied, now.timed);
        // Renewals get at most half of the bytes, so that some commands always fit.
        let most = limits::RENEWALS_AN_ENTRY_MAX.min(state.renewals_an_entry_max.unwrap_or(usize::MAX));
        let bytes = limits::ENTRY_BYTES_MAX / 2;
        let (renewals, used) = state.renewals.fitting(most, bytes, entry_size::of_renewal);
        let renewals = state.renewals.take(renewals);
        renewals.iter().for_each(|waiting| state.uncount_session(&waiting.what.target));
        let (due, taken) = (state.commands.iter().take(limits::COMMANDS_AN_ENTRY_MAX), state.renewals.taken());
        let most = due.take_while(|waiting| waiting.renewals_before <= taken).count();
        let bytes = limits::ENTRY_BYTES_MAX.saturating_sub(used);
        let (commands, _) = state.commands.fitting(most, bytes, entry_size::of_command);
        let commands = state.commands.take(commands);
        let mut left_behind = state.renewals.iter();
        let left_behind = match faults::on(Fault::StampOfTheNewest) {
            false => left_behind.next(),
            true => left_behind.next_back(),
        };
        let left_behind = left_behind.map(|waiting| waiting.what.receipt);
        Some(Batch { stamp: left_behind.map_or(stamp, |receipt| receipt.min(stamp)), renewals, commands })
    }

    /// Returns the real time of the last minute that did not become log time; zero while this node does not lead.
    pub(in crate::node) fn uncounted(&self, now: Instant) -> Duration {
        self.state.lock().clock.as_mut().map_or(Duration::ZERO, |clock| clock.uncounted(now))
    }

    /// Returns the real time of all terms of this leader that did not become log time.
    pub(in crate::node) fn all_uncounted(&self) -> Duration {
        let state = self.state.lock();
        state.uncounted_before + state.clock.as_ref().map_or(Duration::ZERO, LogClock::all_uncounted)
    }

    /// Returns how many commands and renewals wait.
    pub(in crate::node) fn len(&self) -> usize {
        let state = self.state.lock();
        state.renewals.len() + state.commands.len()
    }

    /// Returns log time as this leader last read it; `None` while this node does not lead.
    pub(in crate::node) fn log_time(&self) -> Option<LogTime> {
        self.state.lock().clock.as_ref().map(LogClock::stamp)
    }
}

fn not_sent(answer: ReplySender, leader: Option<LeaderHint>) {
    answer.send(Err(ServiceError::NotSent { why: NotSent::NotLeader, leader })).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_entry;
    use crate::model::{
        Command, Entry, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Patience, Principal,
        SessionId, TakeLease, WallTime,
    };
    use crate::service::Proof;

    const SOURCE: Source = Source::InProcess;
    const NOW: Now = Now { instant: Instant::from_nanos(0), applied: LogTime(0), timed: true };

    fn lock() -> LockKey {
        let name = LockName::parse(&"x".repeat(limits::LOCK_NAME_BYTES_MAX)).expect("legal");
        LockKey { namespace: Namespace::parse(&"n".repeat(limits::NAMESPACE_BYTES_MAX)).expect("legal"), name }
    }

    fn handle() -> Handle {
        Handle::parse(&"h".repeat(limits::HANDLE_BYTES_MAX)).expect("legal")
    }

    /// Returns the queue of a node that leads.
    fn opened() -> ProposalQueue {
        let queue = ProposalQueue::default();
        queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        queue
    }

    fn at(ms: u64) -> Now {
        Now { instant: Instant::from_nanos(ms * 1_000_000), ..NOW }
    }

    fn of_lease() -> RenewalCall {
        let target = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
        RenewalCall { target, proof: Proof::Trusted, attempt: 1 }
    }

    fn of_session(number: u64) -> RenewalCall {
        let target = RenewalTarget::Session(SessionId::new(0, number));
        RenewalCall { target, proof: Proof::Trusted, attempt: 1 }
    }

    fn submission(number: u64) -> Submission {
        let why = "w".repeat(limits::METADATA_BYTES_MAX).into();
        let take = TakeLease {
            lock: lock(),
            take: LeaseRequestId(number.into()),
            handle: handle(),
            access: Mode::Exclusive.into(),
            lease_ms: 1_000,
            patience: Patience::Try,
            metadata: Metadata { why, ..Metadata::default() },
            claim_ms: None,
        };
        Submission { principal: Principal::default(), since: None, command: Command::TakeLease(take) }
    }

    /// A full queue of the largest renewals and commands leaves in entries that fit a message between nodes. Each entry
    /// takes renewals and commands, both in their order, and leaves none out.
    #[test]
    fn entries_are_bounded_in_bytes() {
        let queue = opened();
        let commands = 2 * limits::COMMANDS_AN_ENTRY_MAX as u64;
        for number in 0..commands {
            queue.command(SOURCE, submission(number), oneshot::channel().0).expect("queued");
        }
        let renewal = |attempt| RenewalCall { attempt, ..of_lease() };
        let renewals = 2 * limits::RENEWALS_AN_ENTRY_MAX as u64;
        queue.renewals(SOURCE, (0..renewals).map(renewal).collect(), || NOW).expect("queued");
        let (mut renewed, mut taken) = (Vec::new(), Vec::new());
        while 0 < queue.waiting(1, false) {
            let batch = queue.take(NOW).expect("it leads");
            let (all_renewed, all_taken) = (renewed.len() as u64 == renewals, taken.len() as u64 == commands);
            assert_eq!(
                (all_renewed, all_taken),
                (batch.renewals.is_empty(), batch.commands.is_empty()),
                "each entry takes both"
            );
            let entry = Entry {
                stamp: batch.stamp,
                wall: WallTime(0),
                renewals: batch.renewals.into_iter().map(|waiting| waiting.what).collect(),
                commands: batch.commands.into_iter().map(|waiting| waiting.what).collect(),
                digest: None,
            };
            let bytes = encode_entry(&entry).len();
            assert!(bytes <= limits::ENTRY_BYTES_MAX, "an entry of {bytes} bytes");
            renewed.extend(entry.renewals.iter().map(|renewal| renewal.attempt));
            taken.extend(entry.commands);
        }
        assert!(renewed.into_iter().eq(0..renewals));
        assert!(taken.into_iter().eq((0..commands).map(submission)));
    }

    /// A renewal that is left for a later entry must not be late there: every earlier entry has a stamp no later than
    /// the receipt of the renewal. If several are left, the oldest receipt is the bound.
    #[test]
    fn an_entry_is_stamped_no_later_than_the_oldest_renewal_left_behind() {
        let queue = opened();
        let full = limits::RENEWALS_AN_ENTRY_MAX as u64;
        queue.renewals(SOURCE, (0..full).map(of_session).collect(), || at(0)).expect("queued");
        for (number, ms) in [(full, 10), (full + 1, 20), (full + 2, 30)] {
            queue.renewals(SOURCE, vec![of_session(number)], || at(ms)).expect("queued");
        }
        let first = queue.take(at(40)).expect("it leads");
        assert_eq!((first.renewals.len() as u64, first.stamp), (full, LogTime(10)));
        let second = queue.take(at(40)).expect("it leads");
        assert_eq!((second.renewals.len(), second.stamp), (3, LogTime(40)), "none is left behind");
    }

    /// A command gets no stamp from before its receipt: its client would count a lease from a later time than the
    /// machine. It waits behind the renewals that were received before it, and only behind these.
    #[test]
    fn a_command_is_stamped_no_earlier_than_its_receipt() {
        let queue = opened();
        let command = |number| queue.command(SOURCE, submission(number), oneshot::channel().0).expect("queued");
        let full = limits::RENEWALS_AN_ENTRY_MAX as u64;
        queue.renewals(SOURCE, (0..full).map(of_session).collect(), || at(0)).expect("queued");
        command(1);
        queue.renewals(SOURCE, vec![of_session(full)], || at(10)).expect("queued");
        command(2);
        let taken = || {
            let batch = queue.take(at(20)).expect("it leads");
            (batch.stamp, batch.commands.into_iter().map(|waiting| waiting.what).collect::<Vec<_>>())
        };
        assert_eq!(taken(), (LogTime(10), vec![submission(1)]), "a renewal of 10 ms is left behind");
        assert_eq!(taken(), (LogTime(20), vec![submission(2)]));
    }

    /// When leadership is lost, waiting calls are refused as not sent. During a transfer, commands are kept for the
    /// next leader, except those of the node itself. If the node stops first, no call waits without end.
    #[test]
    fn commands_are_left_for_the_next_leader() {
        let queue = ProposalQueue::default();
        let put = |submission| {
            let (answer, mut reply) = oneshot::channel();
            queue.command(SOURCE, submission, answer).expect("queued");
            assert!(queue.is_open() && reply.try_recv().is_err());
            reply
        };
        let command = || {
            queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
            put(submission(1))
        };
        let is_not_sent = |mut reply: oneshot::Receiver<Result<Reply, ServiceError>>| {
            assert!(matches!(reply.try_recv(), Ok(Err(ServiceError::NotSent { why: NotSent::NotLeader, .. }))));
        };
        let lost = command();
        queue.close(None);
        is_not_sent(lost);
        let mut handed_over = command();
        let own = put(Submission { command: Command::Tick, ..submission(2) });
        queue.pause();
        queue.close(None);
        assert!(!queue.is_open() && handed_over.try_recv().is_err());
        let unsent = queue.take_unsent();
        assert_eq!(unsent.iter().map(|unsent| &unsent.what).collect::<Vec<_>>(), [&submission(1)]);
        assert!(queue.take_unsent().is_empty());
        is_not_sent(own);
        let (unsent, waits) = (command(), {
            queue.pause();
            queue.reject_all(None);
            put(submission(2))
        });
        queue.end();
        is_not_sent(unsent);
        is_not_sent(waits);
    }

    /// Up to `at_most` commands are tested. If there are more commands, or urgent renewals, no command is tested.
    #[test]
    fn a_few_commands_are_tested() {
        let queue = opened();
        for number in 1..=2 {
            queue.command(SOURCE, submission(number), oneshot::channel().0).expect("queued");
        }
        let is_take = |submission: &Submission| matches!(submission.command, Command::TakeLease(_));
        assert!(queue.has_only(2, is_take));
        assert!(!queue.has_only(1, is_take) && !queue.has_only(2, |queued| queued == &submission(1)));
        queue.renewals(SOURCE, vec![of_lease()], || NOW).expect("queued");
        assert!(!queue.has_only(2, is_take));
    }

    /// While renewals of sessions gather, only other calls count. The next entry takes all calls.
    #[test]
    fn sessions_gather() {
        let queue = opened();
        queue.renewals(SOURCE, vec![of_session(1), of_session(2)], || NOW).expect("queued");
        assert_eq!((queue.waiting(1, true), queue.waiting(1, false)), (0, 2));
        queue.renewals(SOURCE, vec![of_lease()], || NOW).expect("queued");
        assert_eq!(queue.waiting(1, true), 1, "a lease is renewed at once");
        assert_eq!(queue.take(NOW).expect("it leads").renewals.len(), 3);
        queue.renewals(SOURCE, vec![of_session(1)], || NOW).expect("queued");
        assert_eq!((queue.waiting(1, true), queue.waiting(1, false)), (0, 1));
    }

    /// A session has a few renewals waiting; a list with one more is refused as a whole. Renewals that leave make space
    /// again.
    #[test]
    fn a_session_has_few_renewals_waiting() {
        let queue = opened();
        let renew = |numbers: &[u64]| {
            queue
                .renewals(SOURCE, numbers.iter().copied().map(of_session).collect(), || NOW)
                .map(|waiting| waiting.len())
        };
        let most = limits::RENEWALS_OF_A_SESSION_MAX;
        assert_eq!(renew(&vec![1; most]), Ok(most));
        assert_eq!(renew(&[2, 1, 3]), Err(NotSent::OVERLOADED));
        assert_eq!(renew(&[2, 3]), Ok(2), "other sessions are not delayed");
        assert_eq!(queue.waiting(1, false), most + 2, "nothing of the refused list waits");
        assert_eq!(queue.take(NOW).expect("it leads").renewals.len(), most + 2);
        assert!(queue.state.lock().of_session.is_empty() && queue.state.lock().sessions == 0);
        assert_eq!(renew(&[1]), Ok(1));
    }
}
