//! The waiters of one lock. An index finds the next waiter, and the first waiter that blocks a request, without a walk
//! over the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::request::Request;
use super::work::looked_at;
use crate::limits;
use crate::model::{Fairness, FencingToken, Handle, LogTime, Mode, Reentry, RequestId};

/// A waiter in a lock's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The request that waits.
    pub request: Request,
    /// Log time when it was queued.
    pub since: LogTime,
    /// The request waits while log time is at most this. `None` if it waits as long as its session lives.
    pub deadline: Option<LogTime>,
    /// The lease that the hold will have.
    pub lease: Option<LeaseWanted>,
    /// What a grant will give the waiter.
    pub purpose: Purpose,
    /// Whether the request is a try. A try waits briefly behind a cached hold, and is then refused. The refusal names
    /// the holder of the lock.
    pub tries: bool,
}

/// A lease that begins with the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWanted {
    /// The secret that will prove it, for a take.
    pub handle: Option<Handle>,
    /// The length of the lease, in milliseconds.
    pub ms: u64,
}

/// What a grant gives a waiter. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A new hold of this lock.
    Hold,
    /// The shared hold with this token, made exclusive.
    Upgrade(FencingToken),
    /// A new hold, together with those of other locks.
    Set,
}

impl Waiter {
    /// Whether the waiter may overtake other barging waiters, and be overtaken by them.
    pub(crate) fn barges(&self) -> bool {
        self.request.choices().fairness == Fairness::Barging
    }

    /// The part of the request that decides which waiters block it.
    pub(crate) fn way(&self) -> Way {
        Way { mode: self.request.mode, barges: self.barges() }
    }

    /// The request of the set that it belongs to.
    pub(crate) fn set_request(&self) -> Option<RequestId> {
        self.request.claim.request().filter(|_| self.purpose == Purpose::Set)
    }

    /// Whether this waiter waits for the end of the hold with this token and mode while the lock does not admit the
    /// waiter. An upgrade does not wait for the hold that it upgrades.
    pub(crate) fn waits_for(&self, token: FencingToken, mode: Mode) -> bool {
        mode.conflicts_with(self.request.mode) && self.purpose != Purpose::Upgrade(token)
    }

    pub(crate) fn take_handle(&self) -> Option<Handle> {
        self.lease.as_ref().and_then(|lease| lease.handle.clone())
    }

    /// Whether its hold will have a deadline.
    pub(crate) fn is_for_a_while(&self) -> bool {
        self.lease.is_some() || self.request.choices().at_most_ms.is_some()
    }

    /// Whether the wait can end without a grant or a cancel: it has a deadline, or it waits for a hold of its own
    /// owner.
    pub(super) fn ends_automatically(&self) -> bool {
        self.deadline.is_some() || self.request.choices().reentry == Reentry::Wait
    }
}

/// The sequence number of an upgrade that waits. No other waiter has it.
pub(crate) const HEAD: u64 = 0;

/// Waiters by sequence number, in the order of arrival. Dereferences to the map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Waiters {
    by_place: BTreeMap<u64, Waiter>,
    /// Derived from the waiters. `None` for an empty queue.
    index: Option<Box<Index>>,
}

/// What is derived from all waiters of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Index {
    /// The sequence numbers of barging waiters that have no fair waiter ahead, by [`amount_wanted`].
    barging: BTreeMap<u64, BTreeSet<u64>>,
    /// The number of waiters that belong to a set.
    sets: usize,
    /// The number of waiters for permits, by whether they belong to a set, and by the permits that they want.
    permits: BTreeMap<(bool, u64), usize>,
    /// For each way to request the lock, the first waiter that blocks the request. While waiters only join at the end,
    /// it only moves toward the end, so that a search looks at each waiter once. An upgrade, which waits at number 0,
    /// is left out.
    first_in_the_way: [Option<NonZeroU64>; WAYS],
}

/// The part of a request that decides which waiters block it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) mode: Mode,
    pub(crate) barges: bool,
}

/// The number of ways that [`Way::at`] distinguishes. Permits count as exclusive: they conflict with every mode.
pub(crate) const WAYS: usize = 4;

impl Way {
    const EACH: [Self; WAYS] = [
        Self { mode: Mode::Shared, barges: false },
        Self { mode: Mode::Exclusive, barges: false },
        Self { mode: Mode::Shared, barges: true },
        Self { mode: Mode::Exclusive, barges: true },
    ];
    /// A request of this way is blocked by every fair waiter, and by no other.
    const BEHIND_FAIR: Self = Self::EACH[3];

    /// The index of this way in a table of all ways.
    pub(crate) fn at(self) -> usize {
        2 * usize::from(self.barges) + usize::from(self.mode != Mode::Shared)
    }

    /// Whether the waiter ahead blocks a request of this way. The request may still overtake it because of the holds of
    /// the request's session.
    ///
    /// A fair waiter for a single hold blocks every barging request, even if both could hold the lock. A fair waiter of
    /// a set blocks it only if their modes conflict.
    pub(crate) fn is_blocked_by(self, ahead: &Waiter) -> bool {
        let conflict = ahead.request.mode.conflicts_with(self.mode);
        if self.barges { !ahead.barges() && (conflict || ahead.purpose == Purpose::Hold) } else { conflict }
    }
}

/// How hard a mode is to admit, compared with other modes of the lock. For a semaphore it is the number of permits.
fn amount_wanted(mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 0,
        Mode::Exclusive => 1,
        Mode::Permits(count) => u64::from(count),
    }
}

impl Deref for Waiters {
    type Target = BTreeMap<u64, Waiter>;

    fn deref(&self) -> &Self::Target {
        &self.by_place
    }
}

impl Waiters {
    /// Adds a waiter: at the end, or an upgrade at the head.
    pub(crate) fn insert(&mut self, place: u64, waiter: Waiter) {
        self.index.get_or_insert_default().add(place, &waiter);
        self.by_place.insert(place, waiter);
    }

    /// Adds a waiter from the records, which come in any order. The caller must then call
    /// [`derive_index`](Self::derive_index).
    pub(super) fn restore(&mut self, place: u64, waiter: Waiter) {
        self.by_place.insert(place, waiter);
    }

    pub(crate) fn remove(&mut self, place: u64) -> Option<Waiter> {
        let waiter = self.by_place.remove(&place)?;
        match &mut self.index {
            Some(index) if !self.by_place.is_empty() => index.remove(place, &waiter, &self.by_place),
            Some(_) | None => self.index = None,
        }
        Some(waiter)
    }

    /// Derives the index from the waiters, after [`restore`](Self::restore) has added all of them.
    pub(super) fn derive_index(&mut self) {
        let mut index = Box::<Index>::default();
        self.by_place.iter().for_each(|(place, waiter)| index.add(*place, waiter));
        self.index = (!self.by_place.is_empty()).then_some(index);
    }

    /// How many of the waiters belong to a set.
    pub(crate) fn sets(&self) -> usize {
        self.index.as_ref().map_or(0, |index| index.sets)
    }

    pub(crate) fn has_sets(&self) -> bool {
        self.sets() != 0
    }

    /// Whether a set may be held back because the free permits fall from `were_free` to `free`. This is so if some
    /// waiter wants more than `free` but at most `were_free`, and if a set that wants at most `were_free` is that
    /// waiter or may be behind it.
    pub(crate) fn holds_back_a_set(&self, free: u64, were_free: u64) -> bool {
        let Some(index) = self.index.as_ref().filter(|_| free < were_free) else { return false };
        let wants = |in_set, least| index.permits.range((in_set, least)..=(in_set, were_free)).next().is_some();
        wants(true, 0) && (wants(true, free + 1) || wants(false, free + 1))
    }

    /// The first waiter that blocks a request of this way if it joins the end of the queue.
    pub(crate) fn first_in_the_way(&self, way: Way) -> Option<u64> {
        if self.by_place.contains_key(&HEAD) {
            return Some(HEAD);
        }
        self.index.as_ref()?.first_in_the_way[way.at()].map(NonZeroU64::get)
    }

    /// The first barging waiter that is admitted and has no fair waiter ahead. If the waiters want many different
    /// amounts, only those with the smallest amounts are looked at. This bounds the work, and still finds a waiter
    /// whenever one is admitted.
    pub(crate) fn first_barging(&self, admits: impl Fn(Mode) -> bool) -> Option<u64> {
        let wants = self.index.iter().flat_map(|index| index.barging.values());
        let firsts = wants
            .take(limits::BARGING_WANTS_LOOKED_AT_MAX)
            .inspect(|_| looked_at())
            .filter_map(|places| places.first().copied());
        firsts.filter(|place| self.by_place.get(place).is_some_and(|waiter| admits(waiter.request.mode))).min()
    }
}

impl Index {
    /// Adds a waiter at the end of the queue to the index.
    fn add(&mut self, place: u64, waiter: &Waiter) {
        self.sets += usize::from(waiter.purpose == Purpose::Set);
        if let Mode::Permits(count) = waiter.request.mode {
            *self.permits.entry((waiter.purpose == Purpose::Set, count.into())).or_default() += 1;
        }
        let Some(number) = NonZeroU64::new(place) else { return };
        if waiter.barges() && self.first_in_the_way[Way::BEHIND_FAIR.at()].is_none() {
            self.barging.entry(amount_wanted(waiter.request.mode)).or_default().insert(place);
        }
        for way in Way::EACH.into_iter().filter(|way| way.is_blocked_by(waiter)) {
            self.first_in_the_way[way.at()].get_or_insert(number);
        }
    }

    /// Removes a waiter from the index. `left` are the waiters that remain.
    fn remove(&mut self, place: u64, waiter: &Waiter, left: &BTreeMap<u64, Waiter>) {
        let want = amount_wanted(waiter.request.mode);
        let in_set = waiter.purpose == Purpose::Set;
        self.sets -= usize::from(in_set);
        // Only a semaphore has entries in `permits`, and there the amount is the number of permits.
        if let Some(waiters) = self.permits.get_mut(&(in_set, want)) {
            *waiters -= 1;
            if *waiters == 0 {
                self.permits.remove(&(in_set, want));
            }
        }
        if let Some(places) = self.barging.get_mut(&want) {
            places.remove(&place);
            if places.is_empty() {
                self.barging.remove(&want);
            }
        }
        for way in Way::EACH {
            let first = &mut self.first_in_the_way[way.at()];
            if first.is_none_or(|first| first.get() != place) {
                continue;
            }
            let behind = left.range(place + 1..);
            *first =
                behind.clone().find(|(_, other)| way.is_blocked_by(other)).and_then(|(at, _)| NonZeroU64::new(*at));
            if way.at() == Way::BEHIND_FAIR.at() {
                for (at, other) in behind.take_while(|(_, other)| other.barges()) {
                    self.barging.entry(amount_wanted(other.request.mode)).or_default().insert(*at);
                }
            }
        }
    }
}
