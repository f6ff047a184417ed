//! A quick look at whether an owner may be in a cycle at all: a walk over the owners that wait for it. Most waits close no
//! cycle, and that is cheap to see however long the queues are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::Machine;
use super::lock::Lock;
use super::owners::{Lookup, Owned, OwnerKey};
use super::state::{Purpose, Standing};
use crate::limits::{CYCLE_OWNERS_WALKED_MAX, CYCLE_STEPS_WALKED_MAX};
use crate::model::{Claim, Kind, LockKey};

/// Why a walk stops early: a cycle is possible.
struct Possible;

/// One walk.
struct Walk<'m> {
    machine: &'m Machine,
    /// The children of the first owner.
    owned: &'m Owned,
    /// The locks that it waits for, with its last place there.
    waits: BTreeMap<&'m LockKey, u64>,
    seen: Lookup<OwnerKey, ()>,
    work: Vec<OwnerKey>,
    steps: usize,
}

impl Machine {
    /// Whether this owner may be in a cycle. Not where a walk over the owners that wait for it ends and met none that it needs.
    /// The walk takes in more than really waits, never less.
    pub(super) fn cycle_is_possible(&self, owner: &OwnerKey, steps: &mut usize) -> bool {
        let Some(owned) = self.owners.get(owner) else { return false };
        let waits = owned.waits.iter().map(|(key, place)| (key, *place)).collect();
        let (seen, work) = ([(owner.clone(), ())].into_iter().collect(), vec![owner.clone()]);
        let mut walk = Walk { machine: self, owned, waits, seen, work, steps: 0 };
        let possible = walk.walk(owner).is_break();
        *steps = steps.saturating_sub(walk.steps);
        possible
    }
}

impl Walk<'_> {
    fn walk(&mut self, first: &OwnerKey) -> ControlFlow<Possible> {
        while let Some(owner) = self.work.pop() {
            let Some(owned) = self.machine.owners.get(&owner) else { continue };
            for parent in owned.endless_parents() {
                self.meet(first, parent)?;
            }
            for (key, token) in &owned.holds {
                let Some(lock) = self.machine.locks.get(key) else { continue };
                for waiter in lock.queue.values().filter(|waiter| waiter.purpose != Purpose::Upgrade(*token)) {
                    self.step()?;
                    lock.endless_wait(waiter).map_or(ControlFlow::Continue(()), |other| self.meet(first, &other))?;
                }
                self.step()?;
            }
            for (key, place) in &owned.waits {
                let Some(lock) = self.machine.locks.get(key) else { continue };
                self.waits_beside_sets(lock, *place)?;
                for (_, waiter) in lock.queue.range(place.saturating_add(1)..) {
                    self.step()?;
                    lock.endless_wait(waiter).map_or(ControlFlow::Continue(()), |other| self.meet(first, &other))?;
                }
                self.step()?;
            }
        }
        ControlFlow::Continue(())
    }

    fn step(&mut self) -> ControlFlow<Possible> {
        self.steps += 1;
        if self.steps <= CYCLE_STEPS_WALKED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(Possible) }
    }

    /// An owner that waits for one that was met.
    fn meet(&mut self, first: &OwnerKey, other: &OwnerKey) -> ControlFlow<Possible> {
        if other == first {
            return ControlFlow::Break(Possible);
        }
        if self.seen.contains_key(other) {
            return ControlFlow::Continue(());
        }
        let Some(owned) = self.machine.owners.get(other) else { return ControlFlow::Continue(()) };
        let holds = owned.holds.iter().any(|(key, _)| self.waits.contains_key(key));
        let ahead = owned.waits.iter().any(|(key, place)| self.waits.get(key).is_some_and(|last| place < last));
        self.steps += owned.holds.len() + owned.waits.len();
        if holds || ahead || self.owned.children.contains_key(other) || CYCLE_OWNERS_WALKED_MAX <= self.seen.len() {
            return ControlFlow::Break(Possible);
        }
        self.seen.insert(other.clone(), ());
        self.work.push(other.clone());
        ControlFlow::Continue(())
    }

    /// Once a wait beside the sets of others is granted, its session may pass waiters elsewhere. So may sessions that hold
    /// permits there. A wait of theirs waits for this one, until then.
    fn waits_beside_sets(&mut self, lock: &Lock, place: u64) -> ControlFlow<Possible> {
        let Some(waiter) = lock.queue.get(&place).filter(|_| lock.has_sets_beside(place)) else {
            return ControlFlow::Continue(());
        };
        self.other_waits(waiter.request.claim)?;
        if lock.kind == Kind::Semaphore {
            for holder in lock.holders.values() {
                self.other_waits(holder.request.claim)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Stops where a session waits by another request than this.
    fn other_waits(&mut self, claim: Claim) -> ControlFlow<Possible> {
        let session = claim.session().and_then(|id| self.machine.sessions.get(&id));
        let several = session.filter(|session| 1 < session.requests());
        for (number, _, standing) in several.into_iter().flat_map(|session| session.standings()) {
            self.step()?;
            let other = !matches!(claim, Claim::Request(request) if request.number == number);
            if other && matches!(standing, Standing::Waits(_)) {
                return ControlFlow::Break(Possible);
            }
        }
        ControlFlow::Continue(())
    }
}
