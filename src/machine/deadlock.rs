//! Deadlock detection over named owners: when owners are checked, which wait is refused, and how it is undone.
//!
//! - When a request starts to wait, its owner is checked, once for a whole set. The request is refused if its wait
//!   closes a cycle.
//! - After the grants of a command, two groups are checked: owners that gained a hold while they or their nested runs
//!   wait, and waiters of a semaphore whose limit was lowered.
//! - If none of those is in a cycle, and something changed at a lock where sets wait, a third group is checked: owners
//!   whose session may now overtake fewer waiters than before.
//!
//! A report is never false, see [`Replay`](super::replay). Every deadlock is found in the end: if a replay assumed that
//! a session overtakes waiters, its owners are checked again when that may have changed. The one exception is an entry
//! whose checks exceed its bound of steps: it skips the remaining checks and counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::cycle::Search;
use super::{Machine, ToCheck};
use crate::faults::{self, Fault};
use crate::limits::{CYCLE_OWNERS_WALKED_MAX, CYCLE_STEPS_WALKED_MAX, OWNERS_WALKED_ONE_BY_ONE_MAX};
use crate::model::{
    Claim, DeadlockLink, FencingToken, Kind, LockKey, Namespace, OnDeadlock, Outcome, Refusal, RefusedDeadlock,
    SessionId, WaitEndReason, WaitReason,
};
use crate::state::{ClaimState, HEAD, Holder, Lock, Lookup, Owned, OwnerKey, Purpose, Waiter, looked_at};

impl Machine {
    /// Marks the owner of a new hold for a check if it, or one of its nested runs, waits for another lock: the hold may
    /// close a cycle.
    pub(super) fn check_holder(&mut self, key: &LockKey, token: FencingToken) {
        let Some(owner) = self.state.holder(key, token).and_then(Holder::endless_owner) else { return };
        let owned = self.state.index.owners.get(&owner);
        if owned.is_some_and(|owned| !owned.waits.is_empty() || !owned.children.is_empty()) {
            self.to_check.owners.insert(owner);
        }
    }

    /// Marks every waiter of a semaphore whose limit was lowered for a check: more permits may have to be returned
    /// before it is granted.
    pub(super) fn check_waiters(&mut self, key: &LockKey) {
        let Some(lock) = self.state.lock(key) else { return };
        self.to_check.owners.extend(lock.queue.values().filter_map(|waiter| lock.endless_wait(waiter)));
    }

    /// Records that a hold or wait of this claim changes or ends at this lock. If a set waits for the lock, sessions
    /// may overtake fewer waiters afterwards. Must be called before a wait ends: afterwards the
    /// queue may have no set, and the change would not be recorded.
    pub(super) fn claim_changes(&mut self, key: &LockKey, claim: Claim) {
        if self.sets_wait_or_waited(key) {
            self.to_check.changed.insert(key.clone());
            self.to_check.sessions.extend(claim.session());
        }
    }

    /// Records that the number of free permits of this lock changes, like [`claim_changes`](Self::claim_changes).
    pub(super) fn capacity_changes(&mut self, key: &LockKey) {
        if self.sets_wait_or_waited(key) {
            self.to_check.changed.insert(key.clone());
        }
    }

    fn sets_wait_or_waited(&self, key: &LockKey) -> bool {
        self.state.index.set_locks.contains(key) || self.to_check.changed.contains(key)
    }

    /// The cycle that a new wait would close, or the waits of a new set together. A nested run that requests what an
    /// ancestor holds closes one too. `None` if the request chose to wait even in a cycle.
    fn closes_cycle(&mut self, keys: &[LockKey], place: u64) -> Option<Vec<DeadlockLink>> {
        let (lock, waiter) = self.waits_at_place(keys.first()?, place)?;
        if waiter.request.choices().deadlock == OnDeadlock::Wait {
            return None;
        }
        let owner = lock.endless_wait(waiter);
        let ancestor = keys.iter().find_map(|key| self.held_by_ancestor(key, self.waits_at_place(key, place)?));
        ancestor.or_else(|| Some(self.first_in_cycle(&[owner?].into(), &BTreeSet::new())?.1))
    }

    fn waits_at_place(&self, key: &LockKey, place: u64) -> Option<(&Lock, &Waiter)> {
        let lock = self.state.lock(key)?;
        Some((lock, lock.queue.get(&place)?))
    }

    fn held_by_ancestor(&self, key: &LockKey, (lock, waiter): (&Lock, &Waiter)) -> Option<Vec<DeadlockLink>> {
        let parent = waiter.request.choices().parent.as_ref()?;
        let (session, owner) = waiter.request.owner_key()?;
        // Permits may come from owners other than the ancestor.
        if parent.session == session && parent.owner == owner || lock.kind == Kind::Semaphore {
            return None;
        }
        let mut ancestors = BTreeSet::new();
        let mut work = vec![(parent.session, parent.owner.clone())];
        while let Some(owner) = work.pop() {
            let parents =
                self.state.index.owners.get(&owner).into_iter().flat_map(|owned| owned.endless_parents().cloned());
            work.extend(parents.filter(|parent| !ancestors.contains(parent)));
            ancestors.insert(owner);
        }
        let in_the_way = lock.holders.values().filter(|holder| holder.request.mode.conflicts_with(waiter.request.mode));
        let mut ancestor = in_the_way.filter_map(|holder| {
            Some((holder.endless_owner().filter(|owner| ancestors.contains(owner))?, &holder.request.metadata))
        });
        let (above, metadata) = ancestor.next()?;
        Some(vec![
            DeadlockLink::new((session, owner), &waiter.request.metadata, key.clone(), WaitReason::Holds),
            DeadlockLink::new(above, metadata, key.clone(), WaitReason::Nested),
        ])
    }

    /// If a wait that was just added closes a cycle, undoes it completely and returns the refusal.
    pub(super) fn refuse_cycle(&mut self, keys: &[LockKey], place: u64, events: usize) -> Result<(), Refusal> {
        let Some(cycle) = self.closes_cycle(keys, place) else { return Ok(()) };
        let to_check = std::mem::take(&mut self.to_check);
        for key in keys {
            let Some(waiter) = self.remove_waiter(key, place) else { continue };
            if let Claim::Request(request) = waiter.request.claim {
                self.state.remove_claim(request, key);
            }
            self.check_queue(key, place);
        }
        self.to_check = to_check;
        self.events.truncate(events);
        if place != HEAD {
            self.state.globals.sequences -= 1;
        }
        Err(self.refused(cycle))
    }

    /// Refuses a wait of an owner that this command brought into a cycle. Returns whether there was such an owner. If
    /// there was none, no owner is left to check.
    pub(super) fn refuse_in_cycle(&mut self) -> bool {
        if self.refuse_one() {
            return true;
        }
        self.to_check.owners = self.owners_that_may_pass_fewer();
        self.refuse_one()
    }

    /// Takes the first owner in a cycle that did not choose to wait even in a cycle, and refuses its newest wait. If
    /// the owner waits only for its nested runs, refuses a wait of one of those.
    fn refuse_one(&mut self) -> bool {
        let (mut owners, mut nesting) = (std::mem::take(&mut self.to_check.owners), BTreeSet::new());
        while let Some((owner, cycle)) = self.first_in_cycle(&owners, &nesting) {
            owners.retain(|other| owner < *other);
            let waits = self.state.index.owners.get(&owner).into_iter().flat_map(|owned| &owned.waits);
            let waits = waits.filter(|(key, place)| {
                let waits = self.waits_at_place(key, *place);
                waits.is_some_and(|(lock, waiter)| {
                    waiter.request.choices().deadlock == OnDeadlock::Refuse && lock.endless_wait(waiter).is_some()
                })
            });
            if let Some((key, place)) = waits.max_by_key(|(key, place)| (*place, key)).cloned() {
                owners.insert(owner);
                self.to_check.owners = owners;
                let refusal = self.refused(cycle);
                self.end_wait_as(&key, place, WaitEndReason::Deadlock, Outcome::Refused(refusal));
                return true;
            }
            let runs = self.state.index.owners.get(&owner).into_iter().flat_map(Owned::endless_children).cloned();
            let runs: Vec<OwnerKey> = runs.filter(|run| *run != owner && !nesting.contains(run)).collect();
            nesting.insert(owner);
            owners.extend(runs);
        }
        false
    }

    /// Records the deadlock for the results of this entry, and returns the refusal.
    fn refused(&mut self, cycle: Vec<DeadlockLink>) -> Refusal {
        self.deadlocks.push(RefusedDeadlock::new(self.state.globals.now, self.state.globals.wall, &cycle));
        Refusal::Deadlock { cycle }
    }

    /// The first of these owners that is in a cycle, and the cycle. If the steps of this entry run out, the remaining
    /// checks are counted as skipped.
    fn first_in_cycle(
        &mut self,
        owners: &BTreeSet<OwnerKey>,
        without: &BTreeSet<OwnerKey>,
    ) -> Option<(OwnerKey, Vec<DeadlockLink>)> {
        let mut owners: Vec<&OwnerKey> = owners.iter().filter(|owner| !without.contains(owner)).collect();
        if owners.is_empty() {
            return None;
        }
        looked_at();
        let mut steps = self.deadlock_steps_left;
        if owners.len() <= OWNERS_WALKED_ONE_BY_ONE_MAX {
            owners.retain(|owner| self.cycle_is_possible(owner, &mut steps));
        }
        if owners.is_empty() || faults::on(Fault::DeadlocksUnseen) {
            self.deadlock_steps_left = steps;
            return None;
        }
        let replay = self.replay(owners.iter().copied(), &mut steps);
        let mut found = None;
        if let Some(replay) = &replay {
            let mut search = Search::of(replay, steps);
            found = search.first_cycle(owners.iter().filter_map(|owner| replay.known(owner)));
            steps = search.steps_left();
        }
        let found = found.map(|(owner, cycle)| (owner.clone(), cycle));
        let skipped = if found.is_none() && steps == 0 { owners.len() as u64 } else { 0 };
        self.deadlock_steps_left = steps;
        self.deadlock_checks_skipped += skipped;
        found
    }

    /// Owners of waits behind or among sets that may have overtaken other waiters before this command, and may not any
    /// more. An owner qualifies if something changed at a lock with waiting sets in its namespace, and another request
    /// of its session has or had a claim there.
    fn owners_that_may_pass_fewer(&mut self) -> BTreeSet<OwnerKey> {
        let ToCheck { changed, sessions, .. } = std::mem::take(&mut self.to_check);
        let namespaces: BTreeSet<&Namespace> = changed.iter().map(|key| &key.namespace).collect();
        let several = namespaces.into_iter().flat_map(|namespace| {
            let from = (namespace.clone(), SessionId::new(0, 0));
            self.state
                .index
                .sessions_with_several
                .range(from..)
                .take_while(move |(in_namespace, _)| in_namespace == namespace)
        });
        let sessions: BTreeSet<SessionId> = sessions.into_iter().chain(several.map(|(_, id)| *id)).collect();
        let mut owners = BTreeSet::new();
        for session in sessions.iter().filter_map(|id| self.state.session(*id)) {
            self.deadlock_steps_left = self.deadlock_steps_left.saturating_sub(session.locks);
            if self.deadlock_steps_left == 0 {
                self.deadlock_checks_skipped += 1;
                break;
            }
            for (_, key, standing) in session.claims() {
                let ClaimState::Waiting(place) = standing else { continue };
                let among_sets = self.state.index.set_locks.contains(key) || changed.contains(key);
                let waits = among_sets.then(|| self.waits_at_place(key, place)).flatten();
                owners.extend(waits.and_then(|(lock, waiter)| lock.endless_wait(waiter)));
            }
        }
        owners
    }
}

/// The result of a [`Walk`] that stopped early: a cycle is possible. Most waits close no cycle, and a walk proves that
/// at low cost, however long the queues are.
struct Possible;

/// A search that starts at one owner and visits the owners that wait for it, directly or through others.
struct Walk<'m> {
    machine: &'m Machine,
    first: &'m OwnerKey,
    /// The claims and children of the first owner.
    owned: &'m Owned,
    /// The locks that the first owner waits for, with its last sequence number there.
    waits: BTreeMap<&'m LockKey, u64>,
    seen: Lookup<OwnerKey, ()>,
    work: Vec<OwnerKey>,
    steps: usize,
}

impl Machine {
    /// Whether this owner may be in a cycle. Returns `false` if a walk over the owners that wait for it meets no owner
    /// that it needs. The walk visits at least the owners that really wait for it, and sometimes more, so `false` is
    /// always right.
    pub(super) fn cycle_is_possible(&self, owner: &OwnerKey, steps: &mut usize) -> bool {
        let Some((first, owned)) = self.state.index.owners.get_key_value(owner) else { return false };
        let waits = owned.waits.iter().map(|(key, place)| (key, *place)).collect();
        let (seen, work) = ([(owner.clone(), ())].into_iter().collect(), vec![owner.clone()]);
        let mut walk = Walk { machine: self, first, owned, waits, seen, work, steps: 0 };
        let possible = walk.walk().is_break();
        *steps = steps.saturating_sub(walk.steps);
        possible
    }
}

impl Walk<'_> {
    fn walk(&mut self) -> ControlFlow<Possible> {
        while let Some(owner) = self.work.pop() {
            let Some(owned) = self.machine.state.index.owners.get(&owner) else { continue };
            for parent in owned.endless_parents() {
                self.meet(parent)?;
            }
            for (key, token) in &owned.holds {
                let Some(lock) = self.machine.state.lock(key) else { continue };
                for waiter in lock.queue.values().filter(|waiter| waiter.purpose != Purpose::Upgrade(*token)) {
                    self.meet_waiter(lock, waiter)?;
                }
                self.step()?;
            }
            for (key, place) in &owned.waits {
                let Some(lock) = self.machine.state.lock(key) else { continue };
                self.waits_among_sets(lock, *place)?;
                for (_, waiter) in lock.queue.range(place.saturating_add(1)..) {
                    self.meet_waiter(lock, waiter)?;
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

    /// Adds the owner of a wait behind a claim of the walk, if the wait does not end automatically.
    fn meet_waiter(&mut self, lock: &Lock, waiter: &Waiter) -> ControlFlow<Possible> {
        self.step()?;
        lock.endless_wait(waiter).map_or(ControlFlow::Continue(()), |other| self.meet(&other))
    }

    /// Adds an owner that waits for an owner of the walk.
    fn meet(&mut self, other: &OwnerKey) -> ControlFlow<Possible> {
        if other == self.first {
            return ControlFlow::Break(Possible);
        }
        if self.seen.contains_key(other) {
            return ControlFlow::Continue(());
        }
        let Some(owned) = self.machine.state.index.owners.get(other) else { return ControlFlow::Continue(()) };
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

    /// Stops if a wait of an owner in the walk can delay another wait through overtaking. When a wait next to the sets
    /// of others is granted, its session may overtake waiters of other locks, and so may sessions that hold permits of
    /// this lock. Until then, the other waits of those sessions depend on this one.
    fn waits_among_sets(&mut self, lock: &Lock, place: u64) -> ControlFlow<Possible> {
        let Some(waiter) = lock.queue.get(&place).filter(|_| lock.has_other_sets(place)) else {
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

    /// Stops if the session waits with another request than this one.
    fn other_waits(&mut self, claim: Claim) -> ControlFlow<Possible> {
        let session = claim.session().and_then(|id| self.machine.state.session(id));
        let several = session.filter(|session| session.has_several());
        for (number, _, standing) in several.into_iter().flat_map(|session| session.claims()) {
            self.step()?;
            let other = !matches!(claim, Claim::Request(request) if request.number == number);
            if other && matches!(standing, ClaimState::Waiting(_)) {
                return ControlFlow::Break(Possible);
            }
        }
        ControlFlow::Continue(())
    }
}
