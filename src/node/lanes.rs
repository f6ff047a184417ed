//! What waits for the next entry: renewals in a lane of their own, commands behind them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::log_clock::LogClock;
use super::{bounds, weight};
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{LogTime, Renewal, RenewalTarget, Reply, Submission};
use crate::service::{LeaderHint, NotSent, RenewalCall, ServiceError};

/// Where a call waits for its answer.
pub(super) type Answer = oneshot::Sender<Result<Reply, ServiceError>>;

/// A command and who waits for its outcome.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// What goes into the entry.
    pub(super) what: T,
    /// Who is told.
    pub(super) answer: Answer,
}

/// One entry's worth of what waits.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The stamp.
    pub(super) stamp: LogTime,
    /// Oldest first.
    pub(super) renewals: Vec<Waiting<Renewal>>,
    /// Oldest first.
    pub(super) commands: Vec<Waiting<Submission>>,
}

/// The proposer's inbox. Bounded: when it is full, callers are told to pause.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    inside: Mutex<Inside>,
    /// As many wait as the proposer waits for.
    pub(super) wake: Notify,
    /// Commands wait for the next leader.
    pub(super) left: Notify,
    /// Whether anything may be put in: a moment after this node began to lead.
    opened: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inside {
    /// Runs while this node leads and has applied an entry of its own term.
    clock: Option<LogClock>,
    /// Leadership is being handed over: nothing is taken out.
    paused: bool,
    renewals: VecDeque<Waiting<Renewal>>,
    /// An entry takes so many of them, where that is fewer than the limit.
    fewer: Option<usize>,
    /// How many of them are sessions'.
    sessions: usize,
    commands: VecDeque<Waiting<Submission>>,
    /// Commands that waited when this node led no longer, while it handed leadership over.
    left: Vec<Waiting<Submission>>,
    /// The proposer is woken when so many wait: each wake-up crosses from one thread to another.
    wake_at: usize,
    /// Nobody is woken for sessions that are renewed: they wait for more of them.
    sessions_gather: bool,
}

impl Inside {
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
pub(super) struct Now {
    /// The node's clock.
    pub(super) instant: Instant,
    /// The newest applied stamp.
    pub(super) applied: LogTime,
    /// Something has a deadline.
    pub(super) timed: bool,
}

impl Lanes {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node leads: log time starts.
    pub(super) fn open(&self, stamp: LogTime, now: Instant, election_max: Duration) {
        let mut inside = self.inside();
        inside.clock = Some(LogClock::start(stamp, now, election_max));
        inside.paused = false;
        self.opened.send_replace(true);
    }

    /// An entry takes at most so many renewals from now on.
    pub(super) fn bound_renewals(&self, most: usize) {
        self.inside().fewer = Some(most);
    }

    /// Tells whether they are open, and when they are.
    pub(super) fn opened(&self) -> watch::Receiver<bool> {
        self.opened.subscribe()
    }

    /// Whether they are open now.
    pub(super) fn are_open(&self) -> bool {
        *self.opened.borrow()
    }

    /// This node does not lead (any more), and log time stops: what waits is turned away.
    pub(super) fn close(&self, leader: Option<LeaderHint>) {
        let mut inside = self.inside();
        inside.clock = None;
        self.opened.send_replace(false);
        drop(inside);
        self.turn_away(leader);
    }

    /// The node stops: nobody passes anything on any more, and whoever still waits is told so.
    pub(super) fn end(&self) {
        self.inside().paused = false;
        self.close(None);
        for Waiting { answer, .. } in self.take_left() {
            not_sent(answer, None);
        }
    }

    /// Nobody follows this node for now: what waits was never sent, and is better asked for elsewhere. Where leadership
    /// is being handed over the next leader is near, and commands are left for it: their callers need not ask again. What
    /// a node says for itself is not, as only the leader itself may.
    pub(super) fn turn_away(&self, leader: Option<LeaderHint>) {
        let mut inside = self.inside();
        let renewals = std::mem::take(&mut inside.renewals);
        let mut commands = std::mem::take(&mut inside.commands);
        inside.sessions = 0;
        if inside.paused {
            let (own, left): (Vec<_>, Vec<_>) =
                commands.into_iter().partition(|waiting| bounds::only_nodes_make(&waiting.what.command));
            commands = own.into();
            inside.left.extend(left);
            self.left.notify_one();
        }
        drop(inside);
        renewals.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
        commands.into_iter().for_each(|waiting| not_sent(waiting.answer, leader.clone()));
    }

    /// Takes out what waits for the next leader.
    pub(super) fn take_left(&self) -> Vec<Waiting<Submission>> {
        std::mem::take(&mut self.inside().left)
    }

    /// Leadership is being handed over: log time stands still, and what waits is kept until it is known where it
    /// belongs.
    pub(super) fn pause(&self) {
        let mut inside = self.inside();
        inside.paused = true;
        if let Some(clock) = inside.clock.as_mut() {
            clock.stop();
        }
    }

    /// The hand-over came to nothing.
    pub(super) fn go_on(&self, now: Instant) {
        let mut inside = self.inside();
        inside.paused = false;
        if let Some(clock) = inside.clock.as_mut() {
            clock.go_on(now);
        }
        drop(inside);
        self.wake.notify_one();
    }

    /// Whether leadership is being handed over.
    pub(super) fn is_paused(&self) -> bool {
        self.inside().paused
    }

    /// Puts a command in; refuses when this node does not lead or too much waits.
    pub(super) fn command(&self, submission: Submission, answer: Answer) -> Result<(), NotSent> {
        let mut inside = self.inside();
        if inside.clock.is_none() {
            return Err(NotSent::NoLeader);
        }
        if limits::PROPOSALS_WAITING_MAX <= inside.commands.len() {
            return Err(NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS });
        }
        inside.commands.push_back(Waiting { what: submission, answer });
        self.wake_if_enough(&inside);
        Ok(())
    }

    /// Puts renewals in, all or none, stamped with the log time of their receipt: `now` is looked at inside.
    pub(super) fn renewals(
        &self,
        calls: Vec<RenewalCall>,
        now: impl FnOnce() -> Now,
    ) -> Result<Vec<oneshot::Receiver<Result<Reply, ServiceError>>>, NotSent> {
        let mut inside = self.inside();
        if limits::PROPOSALS_WAITING_MAX < inside.renewals.len() + calls.len() {
            return Err(NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS });
        }
        let Some(clock) = inside.clock.as_mut() else { return Err(NotSent::NoLeader) };
        let now = now();
        let receipt = clock.read(now.instant, now.applied, now.timed);
        let mut waiting = Vec::with_capacity(calls.len());
        for call in calls {
            let (answer, reply) = oneshot::channel();
            let renewal = Renewal { target: call.target, attempt: call.attempt, receipt };
            inside.sessions += usize::from(is_session(&renewal));
            inside.renewals.push_back(Waiting { what: renewal, answer });
            waiting.push(reply);
        }
        self.wake_if_enough(&inside);
        Ok(waiting)
    }

    fn wake_if_enough(&self, inside: &Inside) {
        if inside.wake_at <= inside.waiting() {
            self.wake.notify_one();
        }
    }

    /// How many wait. The proposer is woken when there are `wanted`; while sessions gather, their renewals do not count.
    pub(super) fn waiting(&self, wanted: usize, sessions_gather: bool) -> usize {
        let mut inside = self.inside();
        inside.wake_at = wanted;
        inside.sessions_gather = sessions_gather;
        inside.waiting()
    }

    /// Whether nothing is to leave but so many commands at most, each of them such a one.
    pub(super) fn are_only(&self, at_most: usize, such: impl Fn(&Submission) -> bool) -> bool {
        let inside = self.inside();
        let commands = &inside.commands;
        inside.waiting() == commands.len()
            && commands.len() <= at_most
            && commands.iter().all(|waiting| such(&waiting.what))
    }

    /// Takes out what fits one entry. Its stamp is the clock's, but not later than the receipt of a renewal that had
    /// to be left behind. `None` while this node does not lead.
    pub(super) fn take(&self, now: Now) -> Option<Batch> {
        let mut inside = self.inside();
        let stamp = inside.clock.as_mut()?.read(now.instant, now.applied, now.timed);
        // Renewals have half of the bytes at most, so that they never keep out every command.
        let most = limits::RENEWALS_AN_ENTRY_MAX.min(inside.fewer.unwrap_or(usize::MAX));
        let bytes = limits::ENTRY_BYTES_MAX / 2;
        let (renewals, used) = fitting(&inside.renewals, most, bytes, weight::of_renewal);
        let renewals: Vec<_> = inside.renewals.drain(..renewals).collect();
        inside.sessions -= renewals.iter().filter(|waiting| is_session(&waiting.what)).count();
        let (most, bytes) = (limits::COMMANDS_AN_ENTRY_MAX, limits::ENTRY_BYTES_MAX.saturating_sub(used));
        let (commands, _) = fitting(&inside.commands, most, bytes, weight::of_command);
        let commands = inside.commands.drain(..commands).collect();
        let left_behind = match faults::on(Fault::StampOfTheNewest) {
            false => inside.renewals.front(),
            true => inside.renewals.back(),
        };
        let left_behind = left_behind.map(|waiting| waiting.what.receipt);
        Some(Batch { stamp: left_behind.map_or(stamp, |receipt| receipt.min(stamp)), renewals, commands })
    }

    /// Uncounted time of the last minute.
    pub(super) fn uncounted(&self, now: Instant) -> Duration {
        self.inside().clock.as_mut().map_or(Duration::ZERO, |clock| clock.uncounted(now))
    }

    /// Log time as the leader last read it, for metrics.
    pub(super) fn log_time(&self) -> Option<LogTime> {
        self.inside().clock.as_ref().map(LogClock::stamp)
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
    /// to spare; both lanes go forward in each entry, in their order, and nothing is left out.
    #[test]
    fn entries_are_bounded_in_bytes() {
        let lanes = Lanes::default();
        lanes.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let commands = 2 * limits::COMMANDS_AN_ENTRY_MAX as u64;
        for number in 0..commands {
            lanes.command(submission(number), oneshot::channel().0).expect("room");
        }
        let renewal = |attempt| {
            let target = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
            RenewalCall { target, proof: Proof::Trusted, attempt }
        };
        let renewals = 2 * limits::RENEWALS_AN_ENTRY_MAX as u64;
        lanes.renewals((0..renewals).map(renewal).collect(), || NOW).expect("room");
        let (mut renewed, mut taken) = (Vec::new(), Vec::new());
        while 0 < lanes.waiting(1, false) {
            let batch = lanes.take(NOW).expect("it leads");
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

    /// A renewal that is left for a later entry must not be late there: the stamp of every entry before is at most its
    /// receipt. Of several that are left behind the oldest counts, as the newest was received later than the others.
    #[test]
    fn an_entry_is_stamped_no_later_than_the_oldest_renewal_left_behind() {
        let at = |ms: u64| Now { instant: Instant::from_nanos(ms * 1_000_000), ..NOW };
        let lanes = Lanes::default();
        lanes.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let renewal = |number| {
            let target = RenewalTarget::Session(SessionId::new(0, number));
            RenewalCall { target, proof: Proof::Trusted, attempt: 1 }
        };
        let full = limits::RENEWALS_AN_ENTRY_MAX as u64;
        lanes.renewals((0..full).map(renewal).collect(), || at(0)).expect("room");
        for (number, ms) in [(full, 10), (full + 1, 20), (full + 2, 30)] {
            lanes.renewals(vec![renewal(number)], || at(ms)).expect("room");
        }
        let first = lanes.take(at(40)).expect("it leads");
        assert_eq!((first.renewals.len() as u64, first.stamp), (full, LogTime(10)));
        let second = lanes.take(at(40)).expect("it leads");
        assert_eq!((second.renewals.len(), second.stamp), (3, LogTime(40)), "none is left behind");
    }

    /// What waits when leadership is lost is told to ask elsewhere; in a hand-over its commands are kept for the next leader,
    /// but for those that a node makes for itself. Where the node stops first, nobody waits for ever.
    #[test]
    fn commands_are_left_for_the_next_leader() {
        let lanes = Lanes::default();
        let put = |submission| {
            let (answer, mut reply) = oneshot::channel();
            lanes.command(submission, answer).expect("room");
            assert!(lanes.are_open() && reply.try_recv().is_err());
            reply
        };
        let command = || {
            lanes.open(LogTime(0), NOW.instant, Duration::from_millis(150));
            put(submission(1))
        };
        let is_told = |mut reply: oneshot::Receiver<Result<Reply, ServiceError>>| {
            assert!(matches!(reply.try_recv(), Ok(Err(ServiceError::NotSent { why: NotSent::NotLeader, .. }))));
        };
        let lost = command();
        lanes.close(None);
        is_told(lost);
        let mut handed_over = command();
        let own = put(Submission { command: Command::Tick, ..submission(2) });
        lanes.pause();
        lanes.close(None);
        assert!(!lanes.are_open() && handed_over.try_recv().is_err());
        let left = lanes.take_left();
        assert_eq!(left.iter().map(|left| &left.what).collect::<Vec<_>>(), [&submission(1)]);
        assert!(lanes.take_left().is_empty());
        is_told(own);
        let (left, waits) = (command(), {
            lanes.pause();
            lanes.turn_away(None);
            put(submission(2))
        });
        lanes.end();
        is_told(left);
        is_told(waits);
    }

    /// Few commands are looked at one by one; more of them, and renewals that are urgent, are not.
    #[test]
    fn a_few_commands_are_looked_at() {
        let lanes = Lanes::default();
        lanes.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        for number in 1..=2 {
            lanes.command(submission(number), oneshot::channel().0).expect("room");
        }
        let is_take = |submission: &Submission| matches!(submission.command, Command::TakeLease(_));
        assert!(lanes.are_only(2, is_take));
        assert!(!lanes.are_only(1, is_take) && !lanes.are_only(2, |told| told == &submission(1)));
        let target = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
        lanes.renewals(vec![RenewalCall { target, proof: Proof::Trusted, attempt: 1 }], || NOW).expect("room");
        assert!(!lanes.are_only(2, is_take));
    }

    /// While sessions gather, only others count; all go together with what leaves.
    #[test]
    fn sessions_gather() {
        let lanes = Lanes::default();
        lanes.open(LogTime(0), NOW.instant, Duration::from_millis(150));
        let renewal = |target| RenewalCall { target, proof: Proof::Trusted, attempt: 1 };
        let session = |number| renewal(RenewalTarget::Session(SessionId::new(0, number)));
        lanes.renewals(vec![session(1), session(2)], || NOW).expect("room");
        assert_eq!((lanes.waiting(1, true), lanes.waiting(1, false)), (0, 2));
        let lease = RenewalTarget::Lease { lock: lock(), handle: handle(), lease_ms: 1_000 };
        lanes.renewals(vec![renewal(lease)], || NOW).expect("room");
        assert_eq!(lanes.waiting(1, true), 1, "a lease is renewed at once");
        assert_eq!(lanes.take(NOW).expect("it leads").renewals.len(), 3);
        lanes.renewals(vec![session(1)], || NOW).expect("room");
        assert_eq!((lanes.waiting(1, true), lanes.waiting(1, false)), (0, 1));
    }
}
