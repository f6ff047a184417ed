//! One lock in use, and what can be read off its holders.

use std::collections::BTreeMap;

use super::expiry::DeadlineOf;
use super::state::{
    ClaimState, Delayed, Globals, HoldEntry, Holder, HolderExtras, Lease, LeaseWanted, Purpose, Request, Waiter,
    permits_of, request_of,
};
use super::waiters::Waiters;
use crate::limits;
use crate::model::{
    Extras, FencingToken, Grant, Handle, HolderView, Kind, LeaseRequestId, LockKey, LockValue, LogTime, Mode, SmallMap,
};

/// One lock in use. A lock that nobody holds or waits for has no record at all.
///
/// - An exclusive holder is the only holder; shared holders hold together; permits in use never exceed the limit.
/// - The head of the queue can't be granted, or it would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lock {
    /// Fixed by the first acquire of the free name.
    pub kind: Kind,
    /// A semaphore's permits.
    pub limit: Option<u32>,
    /// The limit was set from outside and stays. Any other is forgotten with the last user.
    pub limit_kept: bool,
    /// In the order of their grants. Boxed, because a tree's node has room for eleven.
    pub holders: SmallMap<FencingToken, Box<Holder>>,
    /// By place number: first come, first served.
    pub queue: Waiters,
    /// Ended holds that keep the name closed, or their permits reserved.
    pub delays: BTreeMap<FencingToken, Delayed>,
    /// Permits in use; derived from the holders.
    pub permits_held: u64,
    /// Permits that stay closed; derived from the delays.
    pub permits_reserved: u64,
    /// Takes that hold or wait; derived from holders and queue.
    pub leases: SmallMap<LeaseRequestId, ClaimState>,
    /// Those takes by their secrets; derived.
    pub handles: SmallMap<Handle, LeaseRequestId>,
}

impl Lock {
    /// A lock that nobody holds yet.
    pub(super) fn new(kind: Kind, limit: Option<u32>) -> Self {
        let (holders, queue, delays) = (SmallMap::new(), Waiters::default(), BTreeMap::new());
        let (leases, handles, limit_kept) = (SmallMap::new(), SmallMap::new(), false);
        Self { kind, limit, limit_kept, holders, queue, delays, permits_held: 0, permits_reserved: 0, leases, handles }
    }

    /// Whether a wait for it returns: it has no holder, so that no permit of a semaphore is out, and nothing keeps it closed.
    /// Waiters do not count: a lock that passes from its holder to the next waiter has a holder after every entry.
    pub(super) fn is_free_for_wait(&self) -> bool {
        self.holders.is_empty() && self.delays.is_empty()
    }

    /// Whether it needs no record: a wait for it returns, its queue is empty, and its limit is no setting.
    pub(super) fn is_free(&self) -> bool {
        self.is_free_for_wait() && self.queue.is_empty() && !self.limit_kept
    }

    /// How many holds it has, with those that have ended and keep something closed: a limit of permits alone would not bound
    /// them.
    pub(super) fn kept(&self) -> u64 {
        (self.holders.len() + self.delays.len()) as u64
    }

    /// Whether this mode can be held beside the present holders.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders.is_empty() && self.delays.is_empty(),
            Mode::Shared => {
                let shared = self.holders.values().next().is_none_or(|holder| holder.request.mode == Mode::Shared);
                shared && self.delays.is_empty()
            }
            Mode::Permits(count) => {
                let used = self.permits_held + self.permits_reserved;
                used + u64::from(count) <= u64::from(self.limit.unwrap_or_default())
            }
        }
    }

    /// Whether nobody can be granted anything, in no mode: it is held by one alone, or has no permit left.
    pub(super) fn admits_nobody(&self) -> bool {
        match self.kind {
            Kind::Lock => self.holders.values().next().is_some_and(|holder| holder.request.mode == Mode::Exclusive),
            Kind::Semaphore => !self.admits(Mode::Permits(1)),
        }
    }

    /// Whether a set waits here, other than one that stands at this number.
    pub(super) fn has_sets_beside(&self, sequence: u64) -> bool {
        let own = self.queue.get(&sequence).is_some_and(|waiter| waiter.purpose == Purpose::Set);
        usize::from(own) < self.queue.sets()
    }

    /// Whether this mode could be held if that one hold were not there.
    pub(super) fn admits_instead(&self, of: FencingToken, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|(token, _)| **token != of).map(|(_, holder)| holder.request.mode);
        match mode {
            Mode::Exclusive => others.next().is_none() && self.delays.is_empty(),
            Mode::Shared => others.all(|mode| mode == Mode::Shared) && self.delays.is_empty(),
            Mode::Permits(count) => {
                let freed = self.holders.get(&of).map_or(0, |holder| permits_of(holder.request.mode));
                let used = self.permits_held - freed + self.permits_reserved;
                used + u64::from(count) <= u64::from(self.limit.unwrap_or_default())
            }
        }
    }
}

impl Holder {
    /// Holds from now on, without having waited, and without what its request chose about its end.
    pub(super) fn new(request: Request, globals: &Globals) -> Self {
        Self { request, since: globals.now, when: globals.wall, waited_ms: 0, lease: None, extras: None }
    }

    /// Begins to count what its request chose about its end.
    fn count_from(&mut self, now: LogTime) {
        let Extras { at_least_ms, at_most_ms, .. } = self.request.choices();
        let after = |ms: &Option<u64>, max: u64| ms.map(|ms| now.after_ms(ms.min(max)));
        let closed_until = after(at_least_ms, limits::AT_LEAST_MS_MAX);
        let ends = after(at_most_ms, limits::AT_MOST_MS_MAX);
        if closed_until.is_some() || ends.is_some() {
            let extras = self.extras_mut();
            (extras.closed_until, extras.ends) = (closed_until, ends);
        }
    }

    /// The hold that this waiter gets now.
    pub(super) fn from_waiter(waiter: Waiter, globals: &Globals) -> Self {
        let Waiter { request, since, deadline: _, lease, purpose, tries: _ } = waiter;
        let mut holder = Self::new(request, globals);
        holder.waited_ms = globals.now.ms_since(since);
        holder.count_from(globals.now);
        holder.lease =
            lease.map(|LeaseWanted { handle, ms }| Lease { handle, deadline: globals.now.after_ms(ms), attempt: 0 });
        if purpose == Purpose::Set {
            holder.extras_mut().set = true;
        }
        holder
    }

    /// How often its owner has entered it.
    pub(super) fn depth(&self) -> usize {
        1 + self.extras.as_ref().map_or(0, |extras| extras.reentries.len())
    }

    /// Whether its request asked for other locks together with this one.
    pub(super) fn in_set(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.set)
    }

    /// The numbers of a session's requests that hold it, first to last, with their fingerprints.
    pub(super) fn entries(&self) -> impl Iterator<Item = HoldEntry> + '_ {
        let first = request_of(self.request.claim);
        let first = first.map(|(_, number)| HoldEntry { number, fingerprint: self.request.fingerprint });
        let later = self.extras.iter().flat_map(|extras| extras.reentries.iter().chain(&extras.upgrade).copied());
        first.into_iter().chain(later)
    }

    /// The grant as its request is told it.
    pub(super) fn grant(&self, token: FencingToken, number: u64) -> Grant {
        let first = request_of(self.request.claim).is_some_and(|(_, first)| first == number);
        let waited_ms = if first { self.waited_ms } else { 0 };
        Grant { token, deadline: self.leased_until(), ends: self.ends(), waited_ms }
    }

    /// The end of its lease, which renewals move.
    pub(super) fn leased_until(&self) -> Option<LogTime> {
        self.lease.as_ref().map(|lease| lease.deadline)
    }

    /// The end that its request chose, which nothing moves.
    pub(super) fn ends(&self) -> Option<LogTime> {
        self.extras.as_ref().and_then(|extras| extras.ends)
    }

    /// Until when it keeps closed what it has, however it ends.
    pub(super) fn closed_until(&self) -> Option<LogTime> {
        self.extras.as_ref().and_then(|extras| extras.closed_until)
    }

    /// Its ends besides its session's.
    pub(super) fn own_ends(&self, key: &LockKey, token: FencingToken) -> impl Iterator<Item = (LogTime, DeadlineOf)> {
        let lease = self.leased_until().map(|end| (end, DeadlineOf::Lease(key.clone(), token)));
        let ends = self.ends().map(|end| (end, DeadlineOf::AtMost(key.clone(), token)));
        lease.into_iter().chain(ends)
    }

    /// Whether it ends although its session lives and it is not given back.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.lease.is_some() || self.ends().is_some()
    }

    /// When it ends unless renewed, by an end of its own or its session's.
    pub(super) fn deadline(&self, session_deadline: Option<LogTime>) -> Option<LogTime> {
        self.leased_until().into_iter().chain(self.ends()).chain(session_deadline).min()
    }

    /// Keeps this text with the hold. Whether the hold had another one before.
    pub(super) fn set_value(&mut self, value: Option<&LockValue>) -> bool {
        let differs = self.request.choices().value.as_ref() != value;
        if differs {
            self.request.extras.get_or_insert_default().value = value.cloned();
        }
        differs
    }

    /// What has to be there before it can be changed.
    pub(super) fn extras_mut(&mut self) -> &mut HolderExtras {
        self.extras.get_or_insert_default()
    }

    /// Leaves out extras that have become empty, so that equal holds are equal bytes.
    pub(super) fn tidy_extras(&mut self) {
        if self.extras.as_deref().is_some_and(|extras| *extras == HolderExtras::default()) {
            self.extras = None;
        }
    }

    /// What others may know of it; `session_deadline` is its session's, where it has one.
    pub(super) fn view(&self, token: FencingToken, session_deadline: Option<LogTime>) -> HolderView {
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
}
