//! A lock in use, and what follows from its holders.

use std::collections::BTreeMap;

use super::holder::{Delayed, Holder};
use super::owners::OwnerKey;
use super::session::ClaimState;
use super::waiters::{Purpose, Waiter, Waiters};
use crate::faults::{self, Fault};
use crate::model::{Claim, FencingToken, Handle, Kind, LeaseRequestId, Mode, SmallMap};

/// A lock in use. A lock that is free has no record at all.
///
/// - An exclusive holder is the only holder; shared holders hold together. Permits in use exceed the limit only after
///   the limit was lowered.
/// - The head of the queue cannot be granted; otherwise it would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Fixed by the first acquire of the name while it is free.
    pub kind: Kind,
    /// The number of permits of a semaphore.
    pub limit: Option<u32>,
    /// Whether an operator or client set the limit explicitly, so that it stays. Any other limit is removed with the
    /// last user.
    pub limit_kept: bool,
    /// Holders in the order of their grants. Boxed, because a tree's node has space for eleven.
    pub holders: SmallMap<FencingToken, Box<Holder>>,
    /// Waiters by sequence number, in the order of arrival.
    pub queue: Waiters,
    /// Ended holds that keep the name closed, or their permits reserved.
    pub delays: BTreeMap<FencingToken, Delayed>,
    /// The number of permits in use. Derived from the holders.
    pub permits_held: u64,
    /// The number of permits that stay closed. Derived from the delays.
    pub permits_reserved: u64,
    /// Takes that hold or wait. Derived from holders and queue.
    pub leases: SmallMap<LeaseRequestId, ClaimState>,
    /// The takes by their handles. Derived.
    pub handles: SmallMap<Handle, LeaseRequestId>,
}

impl Lock {
    pub(crate) fn new(kind: Kind, limit: Option<u32>) -> Self {
        let (holders, queue, delays) = (SmallMap::new(), Waiters::default(), BTreeMap::new());
        let (leases, handles, limit_kept) = (SmallMap::new(), SmallMap::new(), false);
        Self { kind, limit, limit_kept, holders, queue, delays, permits_held: 0, permits_reserved: 0, leases, handles }
    }

    /// A copy of the lock without everything derived.
    pub(super) fn underived(&self) -> Self {
        let (mut holders, mut queue) = (SmallMap::new(), Waiters::default());
        self.holders.iter().for_each(|(token, holder)| drop(holders.insert(*token, holder.clone())));
        self.queue.iter().for_each(|(place, waiter)| queue.restore(*place, waiter.clone()));
        Self {
            limit_kept: self.limit_kept,
            holders,
            queue,
            delays: self.delays.clone(),
            ..Self::new(self.kind, self.limit)
        }
    }

    /// Whether a wait for the lock's release returns. It does if the lock has no holder and nothing keeps the lock or
    /// its permits closed. Waiters do not count, because a lock that passes from its holder to the next waiter has a
    /// holder after every entry.
    pub(crate) fn is_free_for_wait(&self) -> bool {
        self.holders.is_empty() && self.delays.is_empty()
    }

    /// Whether the lock needs no record: a wait for its release returns, its queue is empty, and its limit was not set
    /// explicitly.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free_for_wait() && self.queue.is_empty() && !self.limit_kept
    }

    /// The number of holds, and of ended holds that keep something closed. A limit of permits alone would not bound
    /// their number.
    pub(crate) fn kept(&self) -> u64 {
        (self.holders.len() + self.delays.len()) as u64
    }

    /// Whether this mode can be held together with the current holders.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => (self.holders.is_empty() || faults::on(Fault::TwoHolders)) && self.delays.is_empty(),
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

    /// Whether no mode can be granted: the lock has an exclusive holder, or no permit is left.
    pub(crate) fn is_full(&self) -> bool {
        match self.kind {
            Kind::Lock => self.holders.values().next().is_some_and(|holder| holder.request.mode == Mode::Exclusive),
            Kind::Semaphore => !self.admits(Mode::Permits(1)),
        }
    }

    /// Whether a set waits here, not counting the waiter with this sequence number.
    pub(crate) fn has_other_sets(&self, sequence: u64) -> bool {
        let own = self.queue.get(&sequence).is_some_and(|waiter| waiter.purpose == Purpose::Set);
        usize::from(own) < self.queue.sets()
    }

    /// Whether this mode could be held if the hold `of` did not exist. What a downgrade of that hold keeps closed is
    /// not closed to its successor.
    pub(crate) fn admits_instead(&self, of: FencingToken, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|(token, _)| **token != of).map(|(_, holder)| holder.request.mode);
        let closed = self.delays.keys().any(|ended| *ended != of);
        match mode {
            Mode::Exclusive => others.next().is_none() && !closed,
            Mode::Shared => others.all(|mode| mode == Mode::Shared) && !closed,
            Mode::Permits(count) => {
                let freed = self.holders.get(&of).map_or(0, |holder| holder.request.mode.permits());
                let used = self.permits_held - freed + self.permits_reserved;
                used + u64::from(count) <= u64::from(self.limit.unwrap_or_default())
            }
        }
    }

    /// The handle of the take with this claim.
    pub(super) fn handle_at(&self, claim: ClaimState) -> Option<Handle> {
        match claim {
            ClaimState::Waiting(place) => self.queue.get(&place).and_then(Waiter::take_handle),
            ClaimState::Holding(token) => self.holders.get(&token).and_then(|holder| holder.take_handle()),
        }
    }

    /// Every claim that waits for the lock or holds it.
    pub(super) fn claims(&self) -> impl Iterator<Item = (Claim, ClaimState)> {
        let holds = self
            .holders
            .iter()
            .flat_map(|(token, holder)| holder.claims().map(|claim| (claim, ClaimState::Holding(*token))));
        holds.chain(self.queue.iter().map(|(place, waiter)| (waiter.request.claim, ClaimState::Waiting(*place))))
    }

    /// The owner of a wait in this queue, if only a grant or a cancel ends the wait. An upgrade also ends with the hold
    /// that it upgrades.
    pub(crate) fn endless_wait(&self, waiter: &Waiter) -> Option<OwnerKey> {
        let lasts = match waiter.purpose {
            Purpose::Upgrade(token) => self.holders.get(&token).is_some_and(|holder| !holder.ends_automatically()),
            Purpose::Hold | Purpose::Set => true,
        };
        waiter.request.owner_key().filter(|_| lasts && !waiter.ends_automatically())
    }
}
