//! One session as its handles, its guards and its keeper share it. It knows no service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::ClientError;
use super::errands::{Perform, Request, is_final};
use super::hold::{Alone, Hold};
use super::numbers::Numbers;
use super::validity::Validity;
use crate::clock::{Clock, Instant};
use crate::limits::{CLOCK_LOOK_MS_MAX, RENEWAL_BEATS};
use crate::model::{Command, EndReason, Handle, Namespace, Reason, Reply, RequestId, SessionId};
use crate::service::{Call, Proof, ServiceError};

/// How sure a hold is, by the client's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Surely held, and renewals are answered.
    Held,
    /// Surely held still, but a renewal is overdue: the cluster has not answered for half a TTL.
    Unsure,
    /// May be held by another.
    Lost,
}

/// How a session came to its end, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed it.
    Closed,
    /// The cluster said so.
    Told(EndReason),
    /// The client's own deadline passed.
    Passed,
}

/// What guards and acquires leave to the session's keeper.
#[derive(Debug)]
pub(super) enum Errand {
    /// Perform a request whose answer nobody waits for, in the turn that it may have already.
    Perform(Request, Option<Alone>),
    /// Renew the lease of a hold from now on.
    KeepLease(Arc<Hold>),
    /// Tell the hold what others do to it from now on.
    Follow(Arc<Hold>),
    /// End the session now.
    Close { done: oneshot::Sender<Result<(), ServiceError>> },
}

/// When a session is renewed. Sessions of one client that live equally long are renewed at the same moments: what leaves
/// together shares messages, and comes to the cluster together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    /// When the client was made. Others begin at other moments, and so do not all come at once.
    pub(super) begun: Instant,
    /// From one renewal to the next: a third of the TTL, or of the grace where that is shorter.
    pub(super) interval: Duration,
}

impl Beat {
    /// When to renew what was renewed at `last`: an interval later, or as little earlier as meets the beat.
    pub(super) fn after(self, last: Instant) -> Instant {
        let step = (self.interval / RENEWAL_BEATS).max(Duration::from_nanos(1)).as_nanos();
        let due = last.after(self.interval).since(self.begun).as_nanos();
        self.begun.after(Duration::from_nanos(u64::try_from(due - due % step).unwrap_or(u64::MAX)))
    }
}

/// The shared state of one session.
#[derive(Debug)]
pub(super) struct Presence {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) namespace: Namespace,
    pub(super) id: SessionId,
    pub(super) handle: Handle,
    pub(super) ttl: Duration,
    /// When it is renewed.
    beat: Beat,
    /// Somebody was told that the session has no stream.
    pub(super) detached: Notify,
    validity: Mutex<Validity>,
    numbers: Mutex<Numbers>,
    hold_attempts: AtomicU64,
    end: watch::Sender<Option<End>>,
    /// What the operator said that ended it.
    why: OnceLock<Reason>,
}

impl Presence {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        namespace: Namespace,
        (id, handle): (SessionId, Handle),
        (ttl, beat): (Duration, Beat),
        validity: Validity,
    ) -> Self {
        Self {
            clock,
            namespace,
            id,
            handle,
            ttl,
            beat,
            detached: Notify::new(),
            validity: Mutex::new(validity),
            numbers: Mutex::default(),
            hold_attempts: AtomicU64::new(0),
            end: watch::Sender::new(None),
            why: OnceLock::new(),
        }
    }

    /// When it is renewed.
    pub(super) fn beat(&self) -> Beat {
        self.beat
    }

    /// The arithmetic of its deadline. Held for a few instructions, never across an await.
    pub(super) fn validity(&self) -> MutexGuard<'_, Validity> {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its request numbers. Held for a few instructions, never across an await.
    pub(super) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request number, and the bound below which all were answered.
    pub(super) fn draw(&self) -> (u64, u64) {
        let mut numbers = self.numbers();
        (numbers.draw(), numbers.answered_below())
    }

    /// The number of the next attempt at renewing a hold's lease: guards may share a hold, so they count together.
    pub(super) fn next_hold_attempt(&self) -> u64 {
        self.hold_attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A command of this session, with its proof.
    pub(super) fn call(&self, command: Command) -> Call {
        Call { proof: self.proof(), ..Call::new(command) }
    }

    /// What shows that this client may act for the session.
    pub(super) fn proof(&self) -> Proof {
        Proof::Handle { handle: self.handle.clone(), namespace: self.namespace.clone() }
    }

    /// A number as the cluster knows it.
    pub(super) fn request(&self, number: u64) -> RequestId {
        RequestId { session: self.id, number }
    }

    /// How it ended; the clock is read, so a deadline that passed unnoticed is found here.
    pub(super) fn ended(&self) -> Option<End> {
        let told = *self.end.borrow();
        if told.is_some() {
            return told;
        }
        if self.validity().is_passed(self.clock.now()) {
            self.end_as(End::Passed);
        }
        *self.end.borrow()
    }

    /// Ends it; the first end counts.
    pub(super) fn end_as(&self, end: End) {
        self.end.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(end);
            first
        });
    }

    /// Ends it as the cluster says, with what the operator said that ended it.
    pub(super) fn end_reported(&self, reason: EndReason, why: Option<Reason>) {
        if let Some(why) = why {
            // Whatever says so again says the same.
            let _ = self.why.set(why);
        }
        self.end_as(End::Told(reason));
    }

    /// What the operator said that ended it.
    pub(super) fn why(&self) -> Option<Reason> {
        self.why.get().cloned()
    }

    /// What is left until the client's own deadline.
    pub(super) fn valid_for(&self) -> Duration {
        if self.ended().is_some() { Duration::ZERO } else { self.validity().left(self.clock.now()) }
    }

    /// How sure it is.
    pub(super) fn state(&self) -> HoldState {
        if self.ended().is_some() {
            return HoldState::Lost;
        }
        let silent = self.clock.now().since(self.validity().newest_answered());
        if silent > self.beat.interval + self.beat.interval / 2 { HoldState::Unsure } else { HoldState::Held }
    }

    /// Waits for its end. It looks at the clock by itself, so it does not depend on the keeper being scheduled, and
    /// at least every [`CLOCK_LOOK_MS_MAX`], because timers do not count the time that the machine was suspended.
    pub(super) async fn lost(&self) -> End {
        let mut told = self.end.subscribe();
        loop {
            if let Some(end) = self.ended() {
                return end;
            }
            let look = pause_until(self.validity().until(), self.clock.now());
            // The sender lives in `self`, so the channel cannot close while it is awaited.
            let _ = tokio::time::timeout(look, told.changed()).await;
        }
    }

    /// Waits until its end is told, by the cluster or by the keeper, which looks at the clock. For those who only give up
    /// then: it costs no timer.
    pub(super) async fn told_of_its_end(&self) -> End {
        let mut told = self.end.subscribe();
        let end = told.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        // The sender lives in `self`, so that there always is one.
        end.unwrap_or(End::Closed)
    }

    /// The error of a call that met the session's end.
    pub(super) fn lost_error(&self, end: End) -> ClientError {
        ClientError::SessionLost { session: self.id, reason: end.reason(), why: self.why() }
    }
}

impl End {
    pub(super) fn reason(self) -> Option<EndReason> {
        match self {
            End::Closed => Some(EndReason::Released),
            End::Told(reason) => Some(reason),
            End::Passed => None,
        }
    }
}

/// How long to sleep towards `target` before the clock is read again; at least a millisecond, so that a clock that is
/// moved by hand is not polled in a loop.
pub(super) fn pause_until(target: Instant, now: Instant) -> Duration {
    target.since(now).clamp(Duration::from_millis(1), Duration::from_millis(CLOCK_LOOK_MS_MAX))
}

/// One handle on a session. When the last one is dropped (sessions and guards alike) the keeper closes the session.
#[derive(Debug, Clone)]
pub(super) struct Tie {
    pub(super) presence: Arc<Presence>,
    pub(super) errands: mpsc::UnboundedSender<Errand>,
    /// The session's service, whose type guards do not name.
    pub(super) service: Arc<dyn Perform>,
    /// How long a service that does not answer is asked again for a caller that waits.
    pub(super) request_wait: Duration,
}

impl Tie {
    /// Leaves an errand. After the keeper's end there is nothing to do: everything ended with the session. The mailbox
    /// needs no bound of its own: each acquire leaves one errand, each guard a few and one for each change of its hold.
    pub(super) fn leave(&self, errand: Errand) {
        let _ = self.errands.send(errand);
    }

    /// Performs a request and waits for its answer. Abandoned halfway, or given up for want of an answer, it is left to the
    /// keeper, which repeats it under the same number.
    pub(super) async fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        let mut unanswered = Unanswered { tie: self, request: Some(request.clone()), turn: None };
        let answered = async {
            unanswered.turn = request.turn().await;
            self.service.perform(self.presence.clone(), request, Some(self.request_wait)).await
        };
        let answer = tokio::select! {
            biased;
            answer = answered => answer,
            end = self.presence.told_of_its_end() => {
                unanswered.request = None;
                return Err(self.presence.lost_error(end));
            }
        };
        if is_final(&answer) {
            unanswered.request = None;
        }
        answer.map_err(ClientError::from)
    }
}

/// Leaves a request to the keeper when nobody waits for its answer any more.
struct Unanswered<'a> {
    tie: &'a Tie,
    request: Option<Request>,
    turn: Option<Alone>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.tie.leave(Errand::Perform(request, self.turn.take()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever was renewed between two moments of the beat is renewed at one moment again, an interval later at most and
    /// hardly earlier.
    #[test]
    fn what_was_renewed_about_the_same_time_is_renewed_together() {
        let (begun, interval) = (Instant::from_nanos(7_000_000_123), Duration::from_millis(3_200));
        let beat = Beat { begun, interval };
        let at = |ms| begun.after(Duration::from_millis(ms));
        assert_eq!(beat.after(begun), at(3_200));
        assert_eq!([1_000, 1_042, 1_099].map(|ms| beat.after(at(ms))), [at(4_200); 3]);
        assert_eq!(beat.after(at(1_100)), at(4_300));
        // Whoever keeps to the beat keeps to it for ever, for all the lateness of timers.
        let late = |at: Instant| at.after(Duration::from_millis(2));
        let fifth = (0..5).fold(at(300), |last, _| late(beat.after(last)));
        assert_eq!(fifth, late(at(300 + 5 * 3_200)));
    }
}
