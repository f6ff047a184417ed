//! One hold, as its guard and its session's task share it. It knows no service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::error::ClientError;
use super::validity::{Answer, Validity};
use super::wait::FirstEnd;
use crate::clock::{Clock, Instant};
use crate::limits::RENEWALS_A_TTL;
use crate::model::{EndReason, FencingToken, Grant, LockName, LogTime, Outcome, Principal, Reason, Reply};

/// How certain a hold is, by the client's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Surely held, and renewals are answered.
    Held,
    /// Surely held still, but a renewal is overdue: the cluster has not answered for half a TTL.
    Unsure,
    /// May be held by another.
    Lost,
}

/// A lock was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Log index of the entry that did it.
    pub index: u64,
    /// Log time of that entry.
    pub at: LogTime,
    /// How often the same owner still has it entered, or how many permits are left; 0 where it is no longer held.
    pub left: u32,
}

impl Released {
    pub(crate) fn from_reply(reply: Reply) -> Result<Self, ClientError> {
        let Outcome::Released { left } = reply.outcome else { return Err(ClientError::unexpected(reply.outcome)) };
        Ok(Self { index: reply.index, at: reply.stamp, left })
    }
}

/// A request to the holder to give up its hold. Nothing else happens: the holder decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeRequest {
    /// Who asks, as the cluster checked it.
    pub by: Principal,
    /// What for.
    pub why: Reason,
}

/// The shared state of one hold.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// One permit: see [`ChangeGuard`].
    changes: Semaphore,
    status: watch::Sender<HoldStatus>,
    end: FirstEnd<HoldEnd>,
    lease: Option<Mutex<HoldLease>>,
    /// The end that its request chose, which no renewal moves.
    ends: Option<Validity>,
    /// A caller watches for its loss.
    watched: AtomicBool,
    /// Events of it may have been missed, and it was not read since.
    unread: AtomicBool,
}

/// What changes while a hold lasts.
#[derive(Debug)]
struct HoldStatus {
    token: FencingToken,
    revoke: Option<RevokeRequest>,
}

/// How a hold ended, apart from its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    /// Its guard gives it back: a later loss is expected.
    Released,
    /// It was lost; the reason, where the cluster reported one.
    Lost(Option<EndReason>),
}

/// A lease of the hold's own, besides its session.
#[derive(Debug)]
struct HoldLease {
    length_ms: u64,
    validity: Validity,
}

/// Exclusive right to change a hold, from the first try of a change to the last.
#[derive(Debug)]
pub(crate) struct ChangeGuard(Arc<Hold>);

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.0.changes.add_permits(1);
    }
}

impl Hold {
    /// A hold as it was granted. `lease` is the length and end of its own lease, and `ends` the end that its request chose,
    /// where it has them.
    pub(crate) fn new(name: LockName, grant: &Grant, lease: Option<(u64, Validity)>, ends: Option<Validity>) -> Self {
        Self {
            name,
            changes: Semaphore::new(1),
            status: watch::Sender::new(HoldStatus { token: grant.token, revoke: None }),
            end: FirstEnd::new(),
            lease: lease.map(|(length_ms, validity)| Mutex::new(HoldLease { length_ms, validity })),
            ends,
            watched: AtomicBool::new(false),
            unread: AtomicBool::new(false),
        }
    }

    /// Waits until no other change, nor the release, is under way.
    pub(crate) async fn change(self: Arc<Self>) -> ChangeGuard {
        // It is never closed.
        if let Ok(permit) = self.changes.acquire().await {
            permit.forget();
        }
        ChangeGuard(self)
    }

    /// The present token: an upgrade gives it a new one.
    pub(crate) fn token(&self) -> FencingToken {
        self.status.borrow().token
    }

    /// An upgrade gave it another token.
    pub(crate) fn regranted(&self, token: FencingToken) {
        self.status.send_modify(|status| status.token = token);
    }

    /// Its guard gives it back.
    pub(crate) fn release(&self) {
        self.end.record(HoldEnd::Released);
    }

    /// The hold was lost, for this reason where there is one.
    pub(crate) fn lose(&self, reason: Option<EndReason>) {
        self.end.record(HoldEnd::Lost(reason));
    }

    /// Another caller asks the holder to give it up.
    pub(crate) fn request_revoke(&self, request: RevokeRequest) {
        self.status.send_modify(|status| status.revoke = Some(request));
    }

    /// A caller begins to watch for its loss. Returns whether that caller has it read first.
    pub(crate) fn watch(&self) -> bool {
        !self.watched.swap(true, Ordering::SeqCst) && self.unread.load(Ordering::SeqCst)
    }

    /// Events of it may have been missed. Returns whether it is read at once.
    pub(crate) fn missed(&self) -> bool {
        self.unread.store(true, Ordering::SeqCst);
        self.watched.load(Ordering::SeqCst)
    }

    /// It is read now.
    pub(crate) fn read_now(&self) {
        self.unread.store(false, Ordering::SeqCst);
    }

    fn lease(&self) -> Option<MutexGuard<'_, HoldLease>> {
        self.lease.as_ref().map(|lease| lease.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Length of its lease in milliseconds, and the time between two renewals; `None` where it has no lease.
    pub(crate) fn lease_length(&self) -> Option<(u64, Duration)> {
        let length_ms = self.lease()?.length_ms;
        Some((length_ms, Duration::from_millis(length_ms) / RENEWALS_A_TTL as u32))
    }

    /// A renewal of its lease was answered.
    pub(crate) fn renewed(&self, answer: Answer, now: Instant) {
        if let Some(mut lease) = self.lease() {
            lease.validity.answered(answer, now);
        }
    }

    /// How it ended, apart from its session; an end of its own that has passed by `now` is recorded.
    pub(crate) fn ended(&self, now: Instant) -> Option<HoldEnd> {
        if self.end.get().is_none() {
            if self.ends.as_ref().is_some_and(|ends| ends.until() <= now) {
                self.lose(Some(EndReason::TimeOver));
            } else if self.lease().is_some_and(|mut lease| lease.validity.is_passed(now)) {
                self.lose(None);
            }
        }
        self.end.get()
    }

    /// What is left of it by ends of its own; `None` where it has none.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let lease = self.lease().map(|lease| lease.validity.left(now));
        lease.into_iter().chain(self.ends.as_ref().map(|ends| ends.left(now))).min()
    }

    /// The first instant at which it may have ended by itself.
    fn until(&self) -> Option<Instant> {
        let lease = self.lease().map(|lease| lease.validity.until());
        lease.into_iter().chain(self.ends.as_ref().map(Validity::until)).min()
    }

    /// How certain it is: as its session, or less where its own lease was not renewed for half of its length.
    pub(crate) fn state(&self, session: HoldState, now: Instant) -> HoldState {
        if self.ended(now).is_some() {
            return HoldState::Lost;
        }
        let interval = self.lease_length().map(|(_, interval)| interval);
        let answered = self.lease().map(|lease| lease.validity.newest_answered());
        let mut renewal = interval.zip(answered).into_iter();
        let overdue = renewal.any(|(interval, answered)| interval + interval / 2 < now.since(answered));
        match session {
            HoldState::Held if overdue => HoldState::Unsure,
            HoldState::Held | HoldState::Unsure | HoldState::Lost => session,
        }
    }

    /// Waits until it ends, apart from its session.
    pub(crate) async fn over(&self, clock: &dyn Clock) -> HoldEnd {
        self.end.reached(clock, || self.ended(clock.now()), || self.until()).await
    }

    /// Waits until an end is recorded, for at most so long.
    pub(crate) async fn over_within(&self, longest: Duration) {
        drop(tokio::time::timeout(longest, self.end.recorded()).await);
    }

    /// Waits for a request to give it up. Each request is returned once.
    pub(crate) async fn revoke_requested(&self) -> RevokeRequest {
        let mut changes = self.status.subscribe();
        loop {
            changes.borrow_and_update();
            let mut request = None;
            self.status.send_if_modified(|status| {
                request = status.revoke.take();
                false
            });
            match request {
                Some(request) => return request,
                None => drop(changes.changed().await),
            }
        }
    }
}
