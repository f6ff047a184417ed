//! Holds, and what remains of a hold after its end.

use serde::{Deserialize, Serialize};

use super::documents::DocumentMark;
use super::globals::Globals;
use super::indexed::DeadlineOf;
use super::owners::OwnerKey;
use super::request::Request;
use super::waiters::{LeaseWanted, Purpose, Waiter};
use crate::limits;
use crate::model::{
    Claim, Extras, FencingToken, Grant, Handle, HolderView, LockKey, LockValue, LogTime, Mode, RequestId, WallTime,
};

/// A holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The request that was granted. An upgrade changes its mode. If the owner acquired the hold several times and
    /// releases the first acquisition, the next one replaces it here.
    pub request: Request,
    /// Log time of the grant.
    pub since: LogTime,
    /// The leader's wall clock at the grant, for display only.
    pub when: WallTime,
    /// How long the request waited for the grant, in milliseconds.
    pub waited_ms: u64,
    /// The deadline that the hold has in addition to its session's. A take always has one, a session's hold only on
    /// request.
    pub lease: Option<Lease>,
    /// Properties that few holds have.
    pub extras: Option<Box<HolderExtras>>,
}

/// A deadline of a hold in addition to its session's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The secret that proves it, for a take.
    pub handle: Option<Handle>,
    /// The lease lasts while log time is at most this.
    pub deadline: LogTime,
    /// The newest refresh that was applied, by the caller's count. Older ones change nothing.
    pub attempt: u64,
}

/// Properties that few holds have. A hold without any of them has no extras.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HolderExtras {
    /// Requests with which the owner acquired the hold again, oldest first. Each needs its own release.
    pub reentries: Vec<HoldEntry>,
    /// The request that made the hold exclusive.
    pub upgrade: Option<HoldEntry>,
    /// Whether the request asked for other locks together with this one.
    pub set: bool,
    /// The fields of the document, if the hold is a document.
    pub document: Option<DocumentMark>,
    /// The lock or permits of the hold stay closed while log time is at most this, however the hold ends (at-least).
    pub closed_until: Option<LogTime>,
    /// The hold lasts while log time is at most this, even if it is renewed (at-most).
    pub ends: Option<LogTime>,
    /// Whether the hold is cached and recalled: its session is to release it after the current use.
    pub recalled: bool,
}

/// A request with which the owner acquired its hold again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEntry {
    /// The number of the request.
    pub number: u64,
    /// Same as [`Request::fingerprint`].
    pub fingerprint: u64,
}

/// A hold that has ended and still keeps its name or permits closed. It may include permits that the hold returned
/// before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delayed {
    /// The hold without its lease and reentries. Its mode says what stays closed.
    pub holder: Holder,
    /// Closed while log time is at most this.
    pub until: LogTime,
    /// The part that was lost and may be resumed; `None` if no part was lost.
    pub lost: Option<LostHold>,
}

/// The part of a hold that may be resumed after an involuntary end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostHold {
    /// The mode of the lost hold.
    pub mode: Mode,
    /// The hold may be resumed while log time is at most this.
    pub until: LogTime,
}

impl Holder {
    /// A hold that begins now, without a wait and without the deadlines that its request chose.
    pub(crate) fn new(request: Request, globals: &Globals) -> Self {
        Self { request, since: globals.now, when: globals.wall, waited_ms: 0, lease: None, extras: None }
    }

    /// Starts the deadlines that its request chose, at this log time.
    fn start_deadlines(&mut self, now: LogTime) {
        let Extras { at_least_ms, at_most_ms, .. } = self.request.choices();
        let after = |ms: &Option<u64>, max: u64| ms.map(|ms| now.after_ms(ms.min(max)));
        let closed_until = after(at_least_ms, limits::AT_LEAST_MS_MAX);
        let ends = after(at_most_ms, limits::AT_MOST_MS_MAX);
        if closed_until.is_some() || ends.is_some() {
            let extras = self.extras_mut();
            (extras.closed_until, extras.ends) = (closed_until, ends);
        }
    }

    /// The hold of a waiter that is granted now.
    pub(crate) fn from_waiter(waiter: Waiter, globals: &Globals) -> Self {
        let Waiter { request, since, deadline: _, lease, purpose, tries: _ } = waiter;
        let mut holder = Self::new(request, globals);
        holder.waited_ms = globals.now.ms_since(since);
        holder.start_deadlines(globals.now);
        holder.lease =
            lease.map(|LeaseWanted { handle, ms }| Lease { handle, deadline: globals.now.after_ms(ms), attempt: 0 });
        if purpose == Purpose::Set {
            holder.extras_mut().set = true;
        }
        holder
    }

    /// How many times the owner has acquired the hold.
    pub(crate) fn depth(&self) -> usize {
        1 + self.extras.as_ref().map_or(0, |extras| extras.reentries.len())
    }

    /// The numbers of the requests that hold it, the oldest first. None for a lease.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let first = self.request.claim.request().map(|first| first.number);
        let again = self.extras.iter().flat_map(|extras| &extras.reentries);
        first.into_iter().chain(again.map(|again| again.number))
    }

    /// Whether this request made the hold exclusive.
    pub(crate) fn was_upgraded_by(&self, number: u64) -> bool {
        let upgrade = self.extras.as_ref().and_then(|extras| extras.upgrade);
        upgrade.is_some_and(|upgrade| upgrade.number == number)
    }

    /// Whether its request asked for other locks together with this one.
    pub(crate) fn in_set(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.set)
    }

    /// The session's requests that hold the lock, first to last: their numbers and fingerprints.
    pub(crate) fn entries(&self) -> impl Iterator<Item = HoldEntry> + '_ {
        let first = self.request.claim.request();
        let first = first.map(|first| HoldEntry { number: first.number, fingerprint: self.request.fingerprint });
        let later = self.extras.iter().flat_map(|extras| extras.reentries.iter().chain(&extras.upgrade).copied());
        first.into_iter().chain(later)
    }

    /// The requests that have the hold, first to last, or its take.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        let first = self.request.claim;
        let later = self.entries().skip(1).map(move |later| match first {
            Claim::Request(request) => Claim::Request(RequestId { number: later.number, ..request }),
            Claim::Lease(_) => first,
        });
        std::iter::once(first).chain(later)
    }

    /// The grant as the answer to its request contains it.
    pub(crate) fn grant(&self, token: FencingToken, number: u64) -> Grant {
        let first = self.request.claim.request().is_some_and(|first| first.number == number);
        let waited_ms = if first { self.waited_ms } else { 0 };
        Grant { token, deadline: self.leased_until(), ends: self.ends(), waited_ms }
    }

    /// The deadline of its lease, which renewals move.
    pub(crate) fn leased_until(&self) -> Option<LogTime> {
        self.lease.as_ref().map(|lease| lease.deadline)
    }

    /// The deadline that its request chose, which nothing moves.
    pub(crate) fn ends(&self) -> Option<LogTime> {
        self.extras.as_ref().and_then(|extras| extras.ends)
    }

    /// Until when the hold keeps its lock or permits closed, however it ends.
    pub(crate) fn closed_until(&self) -> Option<LogTime> {
        self.extras.as_ref().and_then(|extras| extras.closed_until)
    }

    /// The deadlines that it has in addition to its session's.
    pub(crate) fn own_ends(&self, key: &LockKey, token: FencingToken) -> impl Iterator<Item = (LogTime, DeadlineOf)> {
        let lease = self.leased_until().map(|end| (end, DeadlineOf::Lease(key.clone(), token)));
        let ends = self.ends().map(|end| (end, DeadlineOf::AtMost(key.clone(), token)));
        lease.into_iter().chain(ends)
    }

    /// Whether the hold is cached: its session keeps it between uses.
    pub(crate) fn is_cached(&self) -> bool {
        self.request.choices().cached
    }

    /// Whether the hold is recalled: its session is to release it.
    pub(crate) fn is_recalled(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.recalled)
    }

    /// The fields of its document, if it was taken as one.
    pub(crate) fn document(&self) -> Option<DocumentMark> {
        self.extras.as_ref().and_then(|extras| extras.document)
    }

    /// The secret of a take or document. `None` for a session's hold.
    pub(crate) fn take_handle(&self) -> Option<Handle> {
        let leased = self.lease.as_ref().and_then(|lease| lease.handle.clone());
        leased.or_else(|| self.document().map(|mark| mark.ts.handle()))
    }

    /// Whether the hold has a deadline in addition to its session's.
    pub(crate) fn ends_automatically(&self) -> bool {
        self.lease.is_some() || self.ends().is_some()
    }

    /// When the hold ends unless it is renewed: its own deadline or its session's, whichever is earlier.
    pub(crate) fn deadline(&self, session_deadline: Option<LogTime>) -> Option<LogTime> {
        self.leased_until().into_iter().chain(self.ends()).chain(session_deadline).min()
    }

    /// Stores this text with the hold, or removes the stored text for `None`. Returns whether that changed the hold.
    pub(crate) fn set_value(&mut self, value: Option<&LockValue>) -> bool {
        let differs = self.request.choices().value.as_ref() != value;
        if differs {
            self.request.extras.get_or_insert_default().value = value.cloned();
        }
        differs
    }

    /// The extras, created if they are missing, so that they can be changed.
    pub(crate) fn extras_mut(&mut self) -> &mut HolderExtras {
        self.extras.get_or_insert_default()
    }

    /// Removes empty extras, so that equal holds have equal bytes.
    pub(crate) fn tidy_extras(&mut self) {
        if self.extras.as_deref().is_some_and(|extras| *extras == HolderExtras::default()) {
            self.extras = None;
        }
    }

    /// What other clients may know of the hold. `session_deadline` is the deadline of its session, if it has one.
    pub(crate) fn view(&self, token: FencingToken, session_deadline: Option<LogTime>) -> HolderView {
        HolderView {
            session: self.request.claim.session(),
            owner: self.request.owner.clone(),
            principal: self.request.principal.clone(),
            token,
            mode: self.request.mode,
            metadata: (*self.request.metadata).clone(),
            since: self.since,
            deadline: self.deadline(session_deadline),
            cached: self.is_cached(),
            recalled: self.is_recalled(),
        }
    }

    /// The owner of the hold, if only a release or the end of its session ends the hold.
    pub(crate) fn endless_owner(&self) -> Option<OwnerKey> {
        self.request.owner_key().filter(|_| !self.ends_automatically())
    }
}
