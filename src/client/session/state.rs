//! The state of one session, which its clones, its guards and its task share. It calls no service.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::error::ClientError;
use crate::client::hold::HoldState;
use crate::client::session::cached_holds::CachedHolds;
use crate::client::session::hold_table::HoldTable;
use crate::client::validity::Validity;
use crate::client::wait::FirstEnd;
use crate::clock::{Clock, Instant};
use crate::limits::RENEWAL_BEATS;
use crate::model::{Command, EndReason, Handle, LockKey, LockName, Namespace, Reason, RequestId, SessionId};
use crate::mutex::Mutex;
use crate::service::{Call, ErrorCode, Proof, ServiceError};

/// How a session ended, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    Closed,
    Reported(EndReason),
    /// The client's own deadline passed.
    Expired,
    /// Another client has taken the session over.
    Superseded,
}

impl SessionEnd {
    pub(crate) fn reason(self) -> Option<EndReason> {
        match self {
            SessionEnd::Closed => Some(EndReason::Released),
            SessionEnd::Reported(reason) => Some(reason),
            SessionEnd::Expired | SessionEnd::Superseded => None,
        }
    }
}

/// The times at which a session is renewed. Sessions of one client with the same TTL are renewed at the same times, so
/// their renewals share messages and reach the cluster together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewalSchedule {
    /// When the client was created. Other clients start at other times, so that not all renewals arrive together.
    pub(crate) begun: Instant,
    /// Time between two renewals: a third of the TTL, or of the disconnect grace if that is shorter.
    pub(crate) interval: Duration,
    /// Renewals within a TTL, and within the lease of a hold.
    pub(crate) renewals: u32,
}

impl RenewalSchedule {
    /// Returns the longest time between two attempts while none is answered: half an interval.
    pub(crate) fn retry_within(self) -> Duration {
        self.interval / 2
    }

    /// Returns the next renewal after one at `last`: an interval later, or slightly earlier so that it is a time of the
    /// schedule.
    pub(crate) fn after(self, last: Instant) -> Instant {
        let step = (self.interval / RENEWAL_BEATS).max(Duration::from_nanos(1)).as_nanos();
        let due = last.after(self.interval).since(self.begun).as_nanos();
        self.begun.after(Duration::from_nanos(u64::try_from(due - due % step).unwrap_or(u64::MAX)))
    }
}

/// Request numbers of one session.
///
/// - Every number is allocated once, beginning with 1.
/// - Every number below [`answered_below`](Self::answered_below) is answered, and none of them is ever repeated.
#[derive(Debug, Default)]
pub(crate) struct RequestNumbers {
    drawn: u64,
    outstanding: BTreeSet<u64>,
}

impl RequestNumbers {
    /// Returns the next number. It is outstanding until [`finish`](Self::finish).
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.outstanding.insert(self.drawn);
        self.drawn
    }

    /// Records the final answer, after which the request is not repeated. A place in the queue is not final.
    fn finish(&mut self, number: u64) {
        self.outstanding.remove(&number);
    }

    /// Returns the bound below which the cluster may forget answers.
    fn answered_below(&self) -> u64 {
        self.outstanding.first().copied().unwrap_or(self.drawn + 1)
    }
}

#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespace: Namespace,
    pub(crate) id: SessionId,
    pub(crate) handle: Handle,
    pub(crate) ttl: Duration,
    pub(crate) schedule: RenewalSchedule,
    /// Holds that have a latest end share it.
    pub(crate) shared_validity: Arc<Mutex<Validity>>,
    /// Notified when a renewal is answered.
    pub(crate) renewed: Notify,
    /// Notified when the session is attached to another stream.
    pub(crate) attached: Notify,
    /// Notified when a request waits in a queue: its outcome arrives on the session's stream.
    pub(crate) stream_needed: Notify,
    numbers: Mutex<RequestNumbers>,
    hold_attempts: AtomicU64,
    pub(crate) holds: HoldTable,
    end: FirstEnd<SessionEnd>,
    /// The reason that an operator gave for ending the session.
    why: OnceLock<Reason>,
    /// Why the cluster refuses the session's client, since the last answered renewal.
    refusal: Mutex<Option<Reason>>,
}

impl SessionState {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        namespace: Namespace,
        (id, handle): (SessionId, Handle),
        (ttl, schedule): (Duration, RenewalSchedule),
        validity: Validity,
    ) -> Self {
        Self {
            clock,
            namespace,
            id,
            handle,
            ttl,
            schedule,
            shared_validity: Arc::new(Mutex::new(validity)),
            renewed: Notify::new(),
            attached: Notify::new(),
            stream_needed: Notify::new(),
            numbers: Mutex::default(),
            hold_attempts: AtomicU64::new(0),
            holds: HoldTable::new(),
            end: FirstEnd::new(),
            why: OnceLock::new(),
            refusal: Mutex::default(),
        }
    }

    /// Returns the state of its deadline. It is locked for a few instructions, never across an await.
    pub(crate) fn validity(&self) -> MutexGuard<'_, Validity> {
        self.shared_validity.lock()
    }

    /// Returns the next request number, and the bound below which every number is answered.
    pub(crate) fn draw(&self) -> (u64, u64) {
        let mut numbers = self.numbers.lock();
        (numbers.draw(), numbers.answered_below())
    }

    /// Records that the request with this number has its final answer.
    pub(crate) fn finish(&self, number: u64) {
        self.numbers.lock().finish(number);
    }

    /// Returns the number of the next attempt to renew a hold's lease. Guards may share a hold, so all holds of the
    /// session share the counter.
    pub(crate) fn next_hold_attempt(&self) -> u64 {
        self.hold_attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Lets the attempts of hold renewals follow those of the clients that had this session before.
    pub(crate) fn hold_attempts_after(&self, attempt: u64) {
        self.hold_attempts.fetch_max(attempt, Ordering::Relaxed);
    }

    /// Creates a call of this session with its proof.
    pub(crate) fn call(&self, command: Command) -> Call {
        Call { proof: self.proof(), ..Call::new(command) }
    }

    /// Returns the proof that this client may act for the session.
    pub(crate) fn proof(&self) -> Proof {
        Proof::Handle { handle: self.handle.clone(), namespace: self.namespace.clone() }
    }

    /// Returns the request id of this number in the session.
    pub(crate) fn request(&self, number: u64) -> RequestId {
        RequestId { session: self.id, number }
    }

    /// Returns the lock of this name in the session's namespace.
    pub(crate) fn key(&self, name: &LockName) -> LockKey {
        LockKey { namespace: self.namespace.clone(), name: name.clone() }
    }

    /// Returns how the session ended, if it has. Reads the clock, so it detects a deadline that has passed.
    pub(crate) fn ended(&self) -> Option<SessionEnd> {
        if self.end.get().is_none() && self.validity().is_passed(self.clock.now()) {
            self.end_as(SessionEnd::Expired);
        }
        self.end.get()
    }

    /// Records the end of the session. Only the first end counts.
    pub(crate) fn end_as(&self, end: SessionEnd) {
        self.end.record(end);
        self.holds.cached(|cached| *cached = CachedHolds::default());
    }

    /// Updates until when cached holds may be taken, after an answered renewal or the start of an attach.
    pub(crate) fn refresh_cached(&self, renewed: Option<Instant>) {
        let until = self.validity().until();
        let fresh_until = renewed.map(|sent| sent.after(self.ttl / 2).min(until));
        self.holds.cached(|cached| cached.renewed(fresh_until));
    }

    /// Records the end that the cluster reported, with the reason of the operator that ended the session, if any.
    pub(crate) fn end_reported(&self, reason: EndReason, why: Option<Reason>) {
        if let Some(why) = why {
            // All reports of one end have the same reason.
            let _ = self.why.set(why);
        }
        self.end_as(SessionEnd::Reported(reason));
    }

    /// Records whether the cluster refuses the session's client, and why.
    pub(crate) fn refused(&self, error: Option<&ServiceError>) {
        let denied =
            |error: &&ServiceError| matches!(error.code(), ErrorCode::Unauthenticated | ErrorCode::NotPermitted);
        let refusal = error.filter(denied).and_then(|error| Reason::parse(&error.to_string()).ok());
        *self.refusal.lock() = refusal;
    }

    /// Returns the reason that an operator gave for ending the session, or why the cluster refused to renew it, if any.
    pub(crate) fn why(&self) -> Option<Reason> {
        match self.end.get() {
            Some(SessionEnd::Expired) => self.refusal.lock().clone(),
            Some(SessionEnd::Closed | SessionEnd::Reported(_) | SessionEnd::Superseded) | None => {
                self.why.get().cloned()
            }
        }
    }

    /// Returns the time until the client's own deadline; zero once the session has ended.
    pub(crate) fn valid_for(&self) -> Duration {
        if self.ended().is_some() { Duration::ZERO } else { self.validity().left(self.clock.now()) }
    }

    /// Returns how certain it is that the session lives.
    pub(crate) fn state(&self) -> HoldState {
        if self.ended().is_some() {
            return HoldState::Lost;
        }
        let silent = self.clock.now().since(self.validity().newest_answered());
        let interval = self.schedule.interval;
        if silent > interval + interval / 2 { HoldState::Unsure } else { HoldState::Held }
    }

    /// Waits until the session has ended. Reads the clock to detect the deadline.
    pub(crate) async fn lost(&self) -> SessionEnd {
        self.end.reached(&*self.clock, || self.ended(), || Some(self.validity().until())).await
    }

    /// Waits until an end of the session was recorded, which its task does when the deadline passes. Uses no timer.
    pub(crate) async fn closed(&self) -> SessionEnd {
        self.end.recorded().await
    }

    /// Returns the error of a call whose session has ended.
    pub(crate) fn lost_error(&self, end: SessionEnd) -> ClientError {
        ClientError::SessionLost { session: self.id, reason: end.reason(), why: self.why() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions that were renewed within one step of the schedule are next renewed together, at most an interval later
    /// and at most one step earlier.
    #[test]
    fn sessions_renewed_within_one_step_are_next_renewed_together() {
        let (begun, interval) = (Instant::from_nanos(7_000_000_123), Duration::from_millis(3_200));
        let schedule = RenewalSchedule { begun, interval, renewals: 3 };
        let at = |ms| begun.after(Duration::from_millis(ms));
        assert_eq!(schedule.after(begun), at(3_200));
        assert_eq!([1_000, 1_042, 1_099].map(|ms| schedule.after(at(ms))), [at(4_200); 3]);
        assert_eq!(schedule.after(at(1_100)), at(4_300));
        // A session stays on the schedule even if its timers are late.
        let late = |at: Instant| at.after(Duration::from_millis(2));
        let fifth = (0..5).fold(at(300), |last, _| late(schedule.after(last)));
        assert_eq!(fifth, late(at(300 + 5 * 3_200)));
    }

    /// The bound stays at the oldest outstanding number, regardless of later ones, and never includes a number that was
    /// not allocated yet.
    #[test]
    fn the_bound_is_the_oldest_outstanding_number() {
        let mut numbers = RequestNumbers::default();
        assert_eq!(numbers.answered_below(), 1);
        let drawn = [numbers.draw(), numbers.draw(), numbers.draw()];
        assert_eq!(drawn, [1, 2, 3]);
        numbers.finish(2);
        assert_eq!(numbers.answered_below(), 1);
        numbers.finish(1);
        assert_eq!(numbers.answered_below(), 3);
        numbers.finish(3);
        numbers.finish(3);
        assert_eq!(numbers.answered_below(), 4);
        assert_eq!(numbers.draw(), 4);
        assert_eq!(numbers.answered_below(), 4);
    }
}
