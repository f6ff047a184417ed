//! What waits for the next entry: renewals in a lane of their own, commands behind them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::entry_size;
use super::log_clock::LogClock;
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{LogTime, Renewal, RenewalTarget, Reply, Submission};
use crate::node::validate;
use crate::service::{LeaderHint, NotSent, RenewalCall, ServiceError};

/// Where a call waits for its answer.
pub(in crate::node) type Answer = oneshot::Sender<Result<Reply, ServiceError>>;

/// A command and who waits for its outcome.
#[derive(Debug)]
pub(in crate::node) struct Waiting<T> {
    /// What goes into the entry.
    pub(in crate::node) what: T,
    /// Who is told.
    pub(in crate::node) answer: Answer,
}

/// One entry's worth of what waits.
#[derive(Debug, Default)]
pub(in crate::node) struct Batch {
    /// The stamp.
    pub(in crate::node) stamp: LogTime,
    /// Oldest first.
    pub(in crate::node) renewals: Vec<Waiting<Renewal>>,
    /// Oldest first.
    pub(in crate::node) commands: Vec<Waiting<Submission>>,
}

/// The proposer's inbox. Bounded: when it is full, callers are told to pause.
#[derive(Debug, Default)]
pub(in crate::node) struct ProposalQueue {
    state: Mutex<QueueState>,
    /// As many wait as the proposer waits for.
    pub(in crate::node) wake: Notify,
    /// Commands wait for the next leader.
    pub(in crate::node) unsent: Notify,
    /// Whether anything may be put in: a moment after this node began to lead.
    opened: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Runs while this node leads and has applied an entry of its own term.
    clock: Option<LogClock>,
    /// Leadership is being handed over: nothing is taken out.
    paused: bool,
    renewals: VecDeque<Waiting<Renewal>>,
    /// An entry takes so many of them, where that is renewals_an_entry_max than the limit.
    renewals_an_entry_max: Option<usize>,
    /// How many of them are sessions'.
    sessions: usize,
    commands: VecDeque<Waiting<Submission>>,
    /// Commands that waited when this node led no longer, while it handed leadership over.
    unsent: Vec<Waiting<Submission>>,
    /// The proposer is woken when so many wait: each wake-up crosses from one thread to another.
    wake_at: usize,
    /// Nobody is woken for sessions that are renewed: they wait for more of them.
    sessions_gather: bool,
}

impl QueueState {
    fn waiting(&self) -> usize {
        let gathering = if self.sessions_gather { self.sessions } else { 0 };
        self.renewals.len() - gathering + self.commands.len()
    }
}

fn is_session(renewal: &Renewal) -> bool {
    matches!(renewal.target, RenewalTarget::Session(_))
}

/// What the log clock is read against.
#[derive(Debug, Clone, Copy)]
pub(in crate::node) struct Now {
    /// The node's clock.
    pub(in crate::node) instant: Instant,
    /// The newest applied stamp.
    pub(in crate::node) applied: LogTime,
    /// Something has a deadline.
    pub(in crate::node) timed: bool,
}

impl ProposalQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node leads: log time starts.
    pub(in crate::node) fn open(&self, stamp: LogTime, now: Instant, election_max: Duration) {
        let mut state = self.state();
        state.clock = Some(LogClock::start(stamp, now, election_max));
        state.paused = false;
        self.opened.send_replace(true);
    }

    /// An entry takes at most so many renewals from now on.
    pub(in crate::node) fn set_renewals_an_entry_max(&self, most: usize) {
        self.state().renewals_an_entry_max = Some(most);
    }

    /// Tells whether they are open, and when they are.
    pub(in crate::node) fn opened(&self) -> watch::Receiver<bool> {
        self.opened.subscribe()
    }

    /// Whether they are open now.
    pub(in crate::node) fn is_open(&self) -> bool {
        *self.opened.borrow()
    }

    /// This node does not lead (any more), and log time stops: what waits is turned away.
    pub(in crate::node) fn close(&self, leader: Option<LeaderHint>) {
        let mut state = self.state();
        state.clock = None;
        self.opened.send_replace(false);
        drop(state);
        self.reject_all(leader);
    }

    /// The node stops: nobody passes anything on any more, and whoever still waits is told so.
    pub(in crate::node) fn end(&self) {
        self.state().paused = false;
        self.close(None);
        for Waiting { answer, .. } in self.take_unsent() {
            not_sent(answer, None);
        }
    }

    /// Nobody follows this node for now: what waits was never sent, and is better asked for elsewhere. Where leadership
    /// is being handed over the next leader is near, and commands are unsent for it: their callers need not ask again. What
    /// a node says for itself is not, as only the leader itself may.
    pub(in crate::node) fn reject_all(&self, leader: Option<LeaderHint>) {
        let mut state = self.state();
        let renewals = std::mem::take(&mut state.renewals);
        let mut commands = std::mem::take(&mut state.commands);
        state.sessions = 0;
        if state.paused {
            let (own, unsent): (Vec<_>, Vec<_>) =
                commands.into_iter().partition(|waiting| validate::is_internal(&waiting.what.command));
            commands = own.into();
            state.unsent.extend(unsent);
            self.unsent.notify_one();
        }
        drop(state);
        renewals.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
        commands.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
    }

    /// Takes out what waits for the next leader.
    pub(in crate::node) fn take_unsent(&self) -> Vec<Waiting<Submission>> {
        std::mem::take(&mut self.state().unsent)
    }

    /// Leadership is being handed over: log time stands still, and what waits is kept until it is known where it
    /// belongs.
    pub(in crate::node) fn pause(&self) {
        let mut state = self.state();
        state.paused = true;
        if let Some(clock) = state.clock.as_mut() {
            clock.stop();
        }
    }

    /// The hand-over came to nothing.
    pub(in crate::node) fn resume(&self, now: Instant) {
        let mut state = self.state();
        state.paused = false;
        if let Some(clock) = state.clock.as_mut() {
            clock.resume(now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Whether leadership is being handed over.
    pub(in crate::node) fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// Puts a command in; refuses when this node does not lead or too much waits.
    pub(in crate::node) fn command(&self, submission: Submission, answer: Answer) -> Result<(), NotSent> {
        let mut state = self.state();
        if state.clock.is_none() {
            return Err(NotSent::NoLeader);
        }
        if limits::PROPOSALS_WAITING_MAX <= state.commands.len() {
            return Err(NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS });
        }
        state.commands.push_back(Waiting { what: submission, answer });
        self.wake_if_enough(&state);
        Ok(())
    }

    /// Puts renewals in, all or none, stamped with the log time of their receipt: `now` is looked at state.
    pub(in crate::node) fn renewals(
        &self,
        calls: Vec<RenewalCall>,
        now: impl FnOnce() -> Now,
    ) -> Result<Vec<oneshot::Receiver<Result<Reply, ServiceError>>>, NotSent> {
        let mut state = self.state();
        if limits::PROPOSALS_WAITING_MAX < state.renewals.len() + calls.len() {
            return Err(NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS });
        }
        let Some(clock) = state.clock.as_mut() else { return Err(NotSent::NoLeader) };
        let now = now();
        let receipt = clock.read(now.instant, now.applied, now.timed);
        let mut waiting = Vec::with_capacity(calls.len());
        for call in calls {
            let (answer, reply) = oneshot::channel();
            let renewal = Renewal { target: call.target, attempt: call.attempt, receipt };
            state.sessions += usize::from(is_session(&renewal));
            state.renewals.push_back(Waiting { what: renewal, answer });
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

    /// How many wait. The proposer is woken when there are `wanted`; while sessions gather, their renewals do not count.
    pub(in crate::node) fn waiting(&self, wanted: usize, sessions_gather: bool) -> usize {
        let mut state = self.state();
        state.wake_at = wanted;
        state.sessions_gather = sessions_gather;
        state.waiting()
    }

    /// Whether nothing is to leave but so many commands at most, each of them such a one.
    pub(in crate::node) fn has_only(&self, at_most: usize, matches: impl Fn(&Submission) -> bool) -> bool {
        let state = self.state();
        let commands = &state.commands;
        state.waiting() == commands.len()
            && commands.len() <= at_most
            && commands.iter().all(|waiting| matches(&waiting.what))
    }

    /// Takes out what fits one entry. Its stamp is the clock's, but not later than the receipt of a renewal that had
    /// to be unsent behind. `None` while this node does not lead.
    pub(in crate::node) fn take(&self, now: Now) -> Option<Batch> {
        let mut state = self.state();
        let stamp = state.clock.as_mut()?.read(now.instant, now.applied, now.timed);
        // Renewals have half of the bytes at most, so that they never keep out every command.
        let most = limits::RENEWALS_AN_ENTRY_MAX.min(state.renewals_an_entry_max.unwrap_or(usize::MAX));
        let bytes = limits::ENTRY_BYTES_MAX / 2;
        let (renewals, used) = fitting(&state.renewals, most, bytes, entry_size::of_renewal);
        let renewals: Vec<_> = state.renewals.drain(..renewals).collect();
        state.sessions -= renewals.iter().filter(|waiting| is_session(&waiting.what)).count();
        let (most, bytes) = (limits::COMMANDS_AN_ENTRY_MAX, limits::ENTRY_BYTES_MAX.saturating_sub(used));
        let (commands, _) = fitting(&state.commands, most, bytes, entry_size::of_command);
        let commands = state.commands.drain(..commands).collect();
        let left_behind = match faults::on(Fault::StampOfTheNewest) {
            false => state.renewals.front(),
            true => state.renewals.back(),
        };
        let left_behind = left_behind.map(|waiting| waiting.what.receipt);
        Some(Batch { stamp: left_behind.map_or(stamp, |receipt| receipt.min(stamp)), renewals, commands })
    }

    /// Uncounted time of the last minute.
    pub(in crate::node) fn uncounted(&self, now: Instant) -> Duration {
        self.state().clock.as_mut().map_or(Duration::ZERO, |clock| clock.uncounted(now))
    }

    /// Log time as the leader last read it, for metrics.
    pub(in crate::node) fn log_time(&self) -> Option<LogTime> {
        self.state().clock.as_ref().map(LogClock::stamp)
    }
}

fn not_sent(answer: Answer, leader: Option<LeaderHint>) {
    answer.send(Err(ServiceError::NotSent { why: NotSent::NotLeader, leader })).ok();
}

/// How many from the front fit into so many and so many bytes, and their bytes. The first one is taken in any case.
fn fitting<T>(queue: &VecDeque<Waiting<T>>, most: usize, bytes: usize, weigh: impl Fn(&T) -> usize) -> (usize, usize) {
    let mut used = 0;
    for (count, waiting) in queue.iter().take(most).enumerate() {
        let next = used + weigh(&waiting.what);
        if bytes < next && 0 < count {
            return (count, used);
        }
        used = next;
    }
    (queue.len().min(most), used)
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

    const NOW: Now = Now { instant: Instant::from_nanos(0), applied: LogTime(0), timed: true };

    fn lock() -> LockKey {
        let name = LockName::parse(&"x".repeat(limits::LOCK_NAME_BYTES_MAX)).expect("legal");
        LockKey { namespace: Namespace::parse(&"n".repeat(limits::NAMESPACE_BYTES_MAX)).expect("legal"), name }
    }

    fn handle() -> Handle {
        Handle::parse(&"h".repeat(limits::HANDLE_BYTES_MAX)).expect("legal")
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
        };
        Submission { principal: Principal::default(), since: None, command: Command::TakeLease(take) }
    }

    /// A full inbox of the largest renewals and commands goes out in entries that fit a message between nodes with room
    /// to spare; both queue go forward in each entry, in their order, and nothing is unsent out.
    #[test]
    fn entries_are_bounded_in_bytes() {
        let queue = ProposalQueue::default();
        queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let commands = 2 * limits::COMMANDS_AN_ENTRY_MAX as u64;
        for number in 0..commands {
            queue.command(submission(number), oneshot::channel().0).expect("room");
        }
        let renewal = |attempt| {
            let target = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
            RenewalCall { target, proof: Proof::Trusted, attempt }
        };
        let renewals = 2 * limits::RENEWALS_AN_ENTRY_MAX as u64;
        queue.renewals((0..renewals).map(renewal).collect(), || NOW).expect("room");
        let (mut renewed, mut taken) = (Vec::new(), Vec::new());
        while 0 < queue.waiting(1, false) {
            let batch = queue.take(NOW).expect("it leads");
            let (all_renewed, all_taken) = (renewed.len() as u64 == renewals, taken.len() as u64 == commands);
            assert_eq!((all_renewed, all_taken), (batch.renewals.is_empty(), batch.commands.is_empty()), "both go on");
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

    /// A renewal that is unsent for a later entry must not be late there: the stamp of every entry before is at most its
    /// receipt. Of several that are unsent behind the oldest counts, as the newest was received later than the others.
    #[test]
    fn an_entry_is_stamped_no_later_than_the_oldest_renewal_left_behind() {
        let at = |ms: u64| Now { instant: Instant::from_nanos(ms * 1_000_000), ..NOW };
        let queue = ProposalQueue::default();
        queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let renewal = |number| {
            let target = RenewalTarget::Session(SessionId::new(0, number));
            RenewalCall { target, proof: Proof::Trusted, attempt: 1 }
        };
        let full = limits::RENEWALS_AN_ENTRY_MAX as u64;
        queue.renewals((0..full).map(renewal).collect(), || at(0)).expect("room");
        for (number, ms) in [(full, 10), (full + 1, 20), (full + 2, 30)] {
            queue.renewals(vec![renewal(number)], || at(ms)).expect("room");
        }
        let first = queue.take(at(40)).expect("it leads");
        assert_eq!((first.renewals.len() as u64, first.stamp), (full, LogTime(10)));
        let second = queue.take(at(40)).expect("it leads");
        assert_eq!((second.renewals.len(), second.stamp), (3, LogTime(40)), "none is unsent behind");
    }

    /// What waits when leadership is lost is told to ask elsewhere; in a hand-over its commands are kept for the next leader,
    /// but for those that a node makes for itself. Where the node stops first, nobody waits for ever.
    #[test]
    fn commands_are_left_for_the_next_leader() {
        let queue = ProposalQueue::default();
        let put = |submission| {
            let (answer, mut reply) = oneshot::channel();
            queue.command(submission, answer).expect("room");
            assert!(queue.is_open() && reply.try_recv().is_err());
            reply
        };
        let command = || {
            queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
            put(submission(1))
        };
        let is_told = |mut reply: oneshot::Receiver<Result<Reply, ServiceError>>| {
            assert!(matches!(reply.try_recv(), Ok(Err(ServiceError::NotSent { why: NotSent::NotLeader, .. }))));
        };
        let lost = command();
        queue.close(None);
        is_told(lost);
        let mut handed_over = command();
        let own = put(Submission { command: Command::Tick, ..submission(2) });
        queue.pause();
        queue.close(None);
        assert!(!queue.is_open() && handed_over.try_recv().is_err());
        let unsent = queue.take_unsent();
        assert_eq!(unsent.iter().map(|unsent| &unsent.what).collect::<Vec<_>>(), [&submission(1)]);
        assert!(queue.take_unsent().is_empty());
        is_told(own);
        let (unsent, waits) = (command(), {
            queue.pause();
            queue.reject_all(None);
            put(submission(2))
        });
        queue.end();
        is_told(unsent);
        is_told(waits);
    }

    /// Few commands are looked at one by one; more of them, and renewals that are urgent, are not.
    #[test]
    fn a_few_commands_are_looked_at() {
        let queue = ProposalQueue::default();
        queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        for number in 1..=2 {
            queue.command(submission(number), oneshot::channel().0).expect("room");
        }
        let is_take = |submission: &Submission| matches!(submission.command, Command::TakeLease(_));
        assert!(queue.has_only(2, is_take));
        assert!(!queue.has_only(1, is_take) && !queue.has_only(2, |told| told == &submission(1)));
        let target = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
        queue.renewals(vec![RenewalCall { target, proof: Proof::Trusted, attempt: 1 }], || NOW).expect("room");
        assert!(!queue.has_only(2, is_take));
    }

    /// While sessions gather, only others count; all go together with what leaves.
    #[test]
    fn sessions_gather() {
        let queue = ProposalQueue::default();
        queue.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let renewal = |target| RenewalCall { target, proof: Proof::Trusted, attempt: 1 };
        let session = |number| renewal(RenewalTarget::Session(SessionId::new(0, number)));
        queue.renewals(vec![session(1), session(2)], || NOW).expect("room");
        assert_eq!((queue.waiting(1, true), queue.waiting(1, false)), (0, 2));
        let lease = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
        queue.renewals(vec![renewal(lease)], || NOW).expect("room");
        assert_eq!(queue.waiting(1, true), 1, "a lease is renewed at once");
        assert_eq!(queue.take(NOW).expect("it leads").renewals.len(), 3);
        queue.renewals(vec![session(1)], || NOW).expect("room");
        assert_eq!((queue.waiting(1, true), queue.waiting(1, false)), (0, 1));
    }
}
