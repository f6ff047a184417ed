//! The state of one hold, which its guard and its session's task share. It calls no service.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, Ready, ready};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use super::error::ClientError;
use super::validity::{RenewalAnswer, Validity};
use super::wait::FirstEnd;
use crate::clock::{Clock, Instant};
use crate::limits::RENEWALS_A_TTL;
use crate::model::{EndReason, FencingToken, LockName, LogTime, Outcome, Principal, Reason, Reply};
use crate::mutex::Mutex;

/// How certain it is that a hold lasts, by the client's own clock. The least certain state is the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldState {
    /// The hold certainly lasts, and renewals are answered.
    Held,
    /// The hold certainly lasts, but a renewal is overdue: the cluster has not answered for half a TTL.
    Unsure,
    /// Another client may hold the lock.
    Lost,
}

/// The result of releasing a lock. If the session keeps a cached hold, nothing is sent, and the entry is the one that
/// granted the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Log index of the entry that released it.
    pub index: u64,
    /// Log time of that entry.
    pub at: LogTime,
    /// How many reentries of the same owner or how many permits remain; 0 if the lock is no longer held.
    pub left: u32,
}

impl Released {
    pub(crate) fn from_reply(reply: Reply) -> Result<Self, ClientError> {
        let Outcome::Released { left } = reply.outcome else { return Err(ClientError::unexpected(reply.outcome)) };
        Ok(Self { index: reply.index, at: reply.stamp, left })
    }
}

/// A request to the holder to release. It has no other effect: the holder decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeRequest {
    /// Identity of the client that asks, as the cluster verified it.
    pub by: Principal,
    /// The reason that it gives.
    pub why: Reason,
}

/// The shared state of one hold.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// Locked by a [`ChangeGuard`].
    changes: Arc<AsyncMutex<()>>,
    /// Number of changes that have begun.
    changes_begun: AtomicU64,
    status: watch::Sender<HoldStatus>,
    end: FirstEnd<HoldEnd>,
    /// The reason that an operator gave for breaking the hold.
    why: OnceLock<Reason>,
    lease: Option<Mutex<HoldLease>>,
    at_most: Option<AtMost>,
    /// The number of the acquire that a release undoes if its owner may acquire the hold several times; otherwise 0.
    pub(crate) acquire: u64,
    /// The result of a release after which the session keeps the hold; `None` if every release is sent.
    pub(crate) kept: Option<Released>,
    /// Whether a caller watches for the loss of the hold.
    watched: AtomicBool,
    /// Whether events of the hold may have been missed and its state was not read since.
    unread: AtomicBool,
}

/// The parts of a hold that change while it lasts.
#[derive(Debug)]
struct HoldStatus {
    token: FencingToken,
    revoke: Option<RevokeRequest>,
}

/// How a hold ended, if its session did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    /// The guard released the hold, so an end that the cluster reports later is expected.
    Released,
    /// The hold was lost, for the reason that the cluster reported, if any.
    Lost(Option<EndReason>),
}

/// The separate lease of a hold, in addition to its session.
#[derive(Debug)]
struct HoldLease {
    length_ms: u64,
    validity: Validity,
}

/// The latest end of a hold, which its request chose. No renewal moves it.
#[derive(Debug)]
pub(crate) struct AtMost {
    /// Stamp and log index of the entry that granted the hold.
    pub(crate) granted: (LogTime, u64),
    pub(crate) ends: LogTime,
    /// The validity of the hold's session. Each answered renewal gives it a newer relation between the clock and log
    /// time.
    pub(crate) session: Arc<Mutex<Validity>>,
}

impl AtMost {
    /// Returns the validity of the hold by the newest relation between the clock and log time.
    fn validity(&self) -> Validity {
        self.session.lock().for_hold(self.granted, self.ends, Instant::default())
    }
}

/// Exclusive right to change a hold, from the first attempt of a change to the last.
pub(crate) type ChangeGuard = OwnedMutexGuard<()>;

/// A change that waits for its [`ChangeGuard`], or has it. Changes have their turn in the order of their first polls.
pub(crate) type PendingChange = Either<Ready<ChangeGuard>, BoxFuture<'static, ChangeGuard>>;

impl Hold {
    /// Creates the state of a granted hold. `lease` is the length of its separate lease in milliseconds with its
    /// validity, if it has one. `at_most` is the latest end that its request chose, if any.
    pub(crate) fn new(
        name: LockName,
        token: FencingToken,
        lease: Option<(u64, Validity)>,
        at_most: Option<AtMost>,
    ) -> Self {
        Self {
            name,
            changes: Arc::default(),
            changes_begun: AtomicU64::new(0),
            status: watch::Sender::new(HoldStatus { token, revoke: None }),
            end: FirstEnd::new(),
            why: OnceLock::new(),
            lease: lease.map(|(length_ms, validity)| Mutex::new(HoldLease { length_ms, validity })),
            at_most,
            acquire: 0,
            kept: None,
            watched: AtomicBool::new(false),
            unread: AtomicBool::new(false),
        }
    }

    /// Makes it a use of a cached hold, which was granted by this entry.
    pub(crate) fn kept_as(self, granted: Released) -> Self {
        Self { kept: Some(granted), ..self }
    }

    /// Begins a change of the hold, which waits until no other one, including the release, is in progress.
    pub(crate) fn change(self: &Arc<Self>) -> PendingChange {
        if let Ok(change) = Arc::clone(&self.changes).try_lock_owned() {
            self.changes_begun.fetch_add(1, Ordering::Relaxed);
            return Either::Left(ready(change));
        }
        let hold = Arc::clone(self);
        // Boxed because it is rare: otherwise the future of every release would reserve space for it.
        Either::Right(Box::pin(async move {
            let change = Arc::clone(&hold.changes).lock_owned().await;
            hold.changes_begun.fetch_add(1, Ordering::Relaxed);
            change
        }))
    }

    /// Whether a change of the hold is in progress.
    pub(crate) fn is_changing(&self) -> bool {
        self.changes.try_lock().is_err()
    }

    /// Waits for the turn of this change. Returns `None` if the change in progress does not end within this duration,
    /// for example because its caller does not poll it. This change then keeps its place.
    pub(crate) async fn turn_within(
        &self,
        change: &mut BoxFuture<'static, ChangeGuard>,
        longest: Duration,
    ) -> Option<ChangeGuard> {
        loop {
            let begun = self.changes_begun.load(Ordering::Relaxed);
            match tokio::time::timeout(longest, &mut *change).await {
                Ok(change) => return Some(change),
                Err(_) if begun == self.changes_begun.load(Ordering::Relaxed) => return None,
                // Many changes wait for each other.
                Err(_) => {}
            }
        }
    }

    /// Returns the current token, which an upgrade replaces.
    pub(crate) fn token(&self) -> FencingToken {
        self.status.borrow().token
    }

    /// Stores the token of an upgrade.
    pub(crate) fn regranted(&self, token: FencingToken) {
        self.status.send_modify(|status| status.token = token);
    }

    /// Records that its guard released it.
    pub(crate) fn release(&self) {
        self.end.record(HoldEnd::Released);
    }

    /// Records that the hold was lost, with the reason if one is known.
    pub(crate) fn lose(&self, reason: Option<EndReason>) {
        self.end.record(HoldEnd::Lost(reason));
    }

    /// Records that an operator broke the hold, with the operator's reason.
    pub(crate) fn lose_broken(&self, why: Reason) {
        self.why.get_or_init(|| why);
        self.lose(Some(EndReason::Broken));
    }

    /// The reason that an operator gave for breaking the hold, if the hold was broken.
    pub(crate) fn broken_why(&self) -> Option<&Reason> {
        self.why.get()
    }

    /// Stores the request of another client to release the hold.
    pub(crate) fn request_revoke(&self, request: RevokeRequest) {
        self.status.send_modify(|status| status.revoke = Some(request));
    }

    /// Records that a caller watches for the loss. Returns true if the hold must be read first.
    pub(crate) fn watch(&self) -> bool {
        !self.watched.swap(true, Ordering::SeqCst) && self.unread.load(Ordering::SeqCst)
    }

    /// Records that events of the hold may have been missed. Returns true if the hold must be read now.
    pub(crate) fn missed(&self) -> bool {
        self.unread.store(true, Ordering::SeqCst);
        self.watched.load(Ordering::SeqCst)
    }

    /// Records that a read of the hold begins.
    pub(crate) fn read_now(&self) {
        self.unread.store(false, Ordering::SeqCst);
    }

    fn lease(&self) -> Option<MutexGuard<'_, HoldLease>> {
        self.lease.as_ref().map(|lease| lease.lock())
    }

    /// Returns the length of the hold's lease in milliseconds; `None` without a lease.
    pub(crate) fn lease_ms(&self) -> Option<u64> {
        Some(self.lease()?.length_ms)
    }

    /// Makes this the state of a hold that the owner acquired before, which has another state. Both renew the lease by
    /// the longer of their lengths: a renewal by the shorter one would end the lease before the other guard expects it.
    /// An end that the cluster reported for the other one also ends this one.
    pub(crate) fn joins(&self, other: &Self) {
        if let (Some(mut own), Some(mut others)) = (self.lease(), other.lease()) {
            let longest_ms = own.length_ms.max(others.length_ms);
            (own.length_ms, others.length_ms) = (longest_ms, longest_ms);
        }
        match (other.broken_why(), other.end.get()) {
            (Some(why), _) => self.lose_broken(why.clone()),
            (None, Some(HoldEnd::Lost(Some(reason)))) => self.lose(Some(reason)),
            (None, Some(HoldEnd::Released | HoldEnd::Lost(None)) | None) => {}
        }
    }

    /// Extends the lease after an answered renewal.
    pub(crate) fn renewed(&self, answer: RenewalAnswer, now: Instant) {
        if let Some(mut lease) = self.lease() {
            lease.validity.answered(answer, now);
        }
    }

    /// Returns how the hold ended, if its session did not end. Records the end of its lease or of its longest time if
    /// that has passed by `now`.
    pub(crate) fn ended(&self, now: Instant) -> Option<HoldEnd> {
        if self.end.get().is_none() {
            if self.at_most().is_some_and(|at_most| at_most.until() <= now) {
                self.lose(Some(EndReason::TimeOver));
            } else if self.lease().is_some_and(|mut lease| lease.validity.is_passed(now)) {
                self.lose(None);
            }
        }
        self.end.get()
    }

    /// Returns the time left until the end of the hold's lease or of its longest time; `None` if it has neither.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let lease = self.lease().map(|lease| lease.validity.left(now));
        lease.into_iter().chain(self.at_most().map(|at_most| at_most.left(now))).min()
    }

    /// Returns the newest deadlines of its lease and of its longest time, each with the log time of the entry that set
    /// it.
    #[cfg(feature = "cli")]
    pub(crate) fn ends(&self) -> impl Iterator<Item = (LogTime, LogTime)> {
        let lease = self.lease().map(|lease| (lease.validity.stamp(), lease.validity.deadline()));
        lease.into_iter().chain(self.at_most.as_ref().map(|at_most| (at_most.granted.0, at_most.ends)))
    }

    /// Returns the time left until the end that its request chose; `None` if it chose none.
    #[cfg(feature = "cli")]
    pub(crate) fn left_at_most(&self, now: Instant) -> Option<Duration> {
        self.at_most().map(|at_most| at_most.left(now))
    }

    fn at_most(&self) -> Option<Validity> {
        self.at_most.as_ref().map(AtMost::validity)
    }

    /// Returns the first instant at which the hold's lease or its longest time may end.
    fn until(&self) -> Option<Instant> {
        let lease = self.lease().map(|lease| lease.validity.until());
        lease.into_iter().chain(self.at_most().map(|at_most| at_most.until())).min()
    }

    /// Returns how certain it is that the hold lasts: as certain as its session, or less if its own lease was not
    /// renewed for half of its length.
    pub(crate) fn state(&self, session: HoldState, now: Instant) -> HoldState {
        if self.ended(now).is_some() {
            return HoldState::Lost;
        }
        let overdue = self.lease().is_some_and(|lease| {
            let interval = Duration::from_millis(lease.length_ms) / RENEWALS_A_TTL as u32;
            interval + interval / 2 < now.since(lease.validity.newest_answered())
        });
        match session {
            HoldState::Held if overdue => HoldState::Unsure,
            HoldState::Held | HoldState::Unsure | HoldState::Lost => session,
        }
    }

    /// Waits until the hold ends. Does not return if its session ends.
    pub(crate) async fn over(&self, clock: &dyn Clock) -> HoldEnd {
        self.end.reached(clock, || self.ended(clock.now()), || self.until()).await
    }

    /// Waits for at most this duration until an end is recorded.
    pub(crate) async fn over_within(&self, longest: Duration) {
        drop(tokio::time::timeout(longest, self.end.recorded()).await);
    }

    /// Waits until another client asks the holder to release. Each request is returned once.
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
