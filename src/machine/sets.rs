//! Lock sets: several locks, granted whole or queued whole, under one sequence number in every queue.

use std::sync::Arc;

use super::Machine;
use super::acquire::{Admission, limit_of};
use super::history::Entrance;
use super::requests::of_set;
use super::state::{HolderExtras, Lease, Purpose, Standing, Waiter, kind_of};
use crate::limits;
use crate::model::{
    AcquireSet, Claim, DurationField, EndReason, Extras, Fairness, Grant, LeaveReason, LockKey, LockName, Mode,
    Outcome, Place, Principal, QuotaKind, Reentry, Refusal, RequestId,
};

impl Machine {
    pub(super) fn acquire_set(&mut self, principal: &Principal, set: &AcquireSet) -> Outcome {
        let id = set.request.session;
        if let Err(refusal) = self.live_session(id) {
            return Outcome::Refused(refusal);
        }
        self.answered_below(id, set.answered_below);
        let fingerprint = of_set(set);
        self.settle_request(set.request);
        if let Some(outcome) = self.live_request(set.request, fingerprint) {
            return outcome;
        }
        if let Some(outcome) = self.recall(set.request, fingerprint) {
            return outcome;
        }
        let Some(session) = self.sessions.get(&id) else {
            return Outcome::Refused(self.session_ended(id));
        };
        let namespace = session.record.namespace.clone();
        let key = |name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        let members: Vec<(LockKey, Mode)> = set.members.iter().map(|(name, mode)| (key(name), *mode)).collect();
        for (key, _) in &members {
            self.settle(key);
        }
        match self.admit_set(&members, set) {
            Err(refusal) => self.final_answer(set.request, fingerprint, Outcome::Refused(refusal)),
            Ok(waits) => self.enter_set(principal, set, fingerprint, &members, waits),
        }
    }

    /// Whether the set has to wait, or why it is refused.
    fn admit_set(&self, members: &[(LockKey, Mode)], set: &AcquireSet) -> Result<bool, Refusal> {
        let lease_ms = set.extras.as_ref().and_then(|extras| extras.lease_ms);
        if let Some(refusal) = lease_ms.and_then(|lease_ms| self.lease_out_of_bounds(DurationField::Lease, lease_ms)) {
            return Err(refusal);
        }
        let limit = limits::LOCKS_A_SET_MAX as u64;
        let more =
            (members.len() as u64).checked_sub(1).ok_or(Refusal::Quota { what: QuotaKind::LocksOfSet, limit })?;
        self.quotas.one_more(QuotaKind::LocksOfSet, more)?;
        let session = set.request.session;
        for (key, _) in members {
            if let Some(token) = self.standing_of_owner(key, session, set.owner.as_ref()) {
                return Err(Refusal::AlreadyHeld { lock: key.clone(), session, token });
            }
        }
        let live = self.sessions.get(&session).map_or(0, |session| session.locks() as u64);
        self.quotas.one_more(QuotaKind::LocksOfSession, live + more)?;
        let mut waits = false;
        for (key, mode) in members {
            match self.admission(key, *mode, set.patience, Fairness::Fair, Some(session))? {
                Admission::Grant | Admission::Enter(_) => {}
                Admission::Queue => waits = true,
            }
        }
        let usage = members.first().and_then(|(key, _)| self.usage.get(&key.namespace)).copied().unwrap_or_default();
        self.quotas.one_more(QuotaKind::Locks, usage.locks + more)?;
        if waits {
            self.quotas.one_more(QuotaKind::Waiters, usage.waiters + more)?;
        }
        Ok(waits)
    }

    /// Holds all of it or waits for all of it.
    fn enter_set(
        &mut self,
        principal: &Principal,
        set: &AcquireSet,
        fingerprint: u64,
        members: &[(LockKey, Mode)],
        waits: bool,
    ) -> Outcome {
        let metadata = Arc::new(set.metadata.clone());
        let extras = set
            .extras
            .clone()
            .map(|extras| Box::new(Extras { reentry: Reentry::Refuse, fairness: Fairness::Fair, ..*extras }));
        let events = self.events.len();
        if waits {
            self.globals.sequences += 1;
        }
        let sequence = self.globals.sequences;
        let mut granted = Vec::new();
        for (key, mode) in members {
            let waiter = Waiter {
                claim: Claim::Request(set.request),
                owner: set.owner.clone(),
                mode: *mode,
                principal: principal.clone(),
                metadata: Arc::clone(&metadata),
                since: self.globals.now,
                deadline: self.wait_deadline(set.patience),
                fingerprint,
                lease: None,
                extras: extras.clone(),
                purpose: Purpose::Set,
            };
            self.lock_in_use(key, kind_of(*mode), limit_of(*mode));
            if waits {
                self.stand_in_queue(key, sequence, waiter);
            } else {
                let holder = self.holder_of(&waiter);
                let deadline = holder.lease.as_ref().map(|lease: &Lease| lease.deadline);
                let token = self.hold(key, holder, self.at_once(Fairness::Fair));
                granted.push((key.name.clone(), Grant { token, deadline, waited_ms: 0 }));
            }
        }
        if !waits {
            return Outcome::GrantedSet(granted);
        }
        let keys: Vec<LockKey> = members.iter().map(|(key, _)| key.clone()).collect();
        match self.closes_cycle(&keys, sequence) {
            Some(circle) => {
                let refused = self.take_back(&keys, sequence, events, circle);
                self.final_answer(set.request, fingerprint, refused)
            }
            None => Outcome::Queued(self.place_of_set(set.request, (&keys[0], sequence))),
        }
    }

    /// The locks of a set that waits, under this number.
    pub(super) fn members_waiting(&self, request: RequestId, sequence: u64) -> Vec<LockKey> {
        let session = self.sessions.get(&request.session);
        let members = session.and_then(|session| session.sets.get(&request.number)).into_iter().flatten();
        members.filter(|(_, standing)| **standing == Standing::Waits(sequence)).map(|(key, _)| key.clone()).collect()
    }

    /// Where a set waits that stands in the queue `any`: its place for the first lock that it lacks.
    pub(super) fn place_of_set(&self, request: RequestId, any: (&LockKey, u64)) -> Place {
        let session = self.sessions.get(&request.session);
        let members = session.and_then(|session| session.sets.get(&request.number)).into_iter().flatten();
        let mut waits = members.filter_map(|(key, standing)| match standing {
            Standing::Waits(sequence) => Some((key, *sequence)),
            Standing::Holds(_) => None,
        });
        let lacks = |key: &LockKey, sequence| {
            self.locks.get(key).is_some_and(|lock| !self.could_have(key, lock, sequence, request.session))
        };
        let (key, sequence) = waits.find(|(key, sequence)| lacks(key, *sequence)).unwrap_or(any);
        self.place(key, sequence)
    }

    /// What a repeated request of a set is told that holds: what it still holds.
    pub(super) fn grants_of_set(&self, request: RequestId) -> Outcome {
        let session = self.sessions.get(&request.session);
        let members = session.and_then(|session| session.sets.get(&request.number)).into_iter().flatten();
        let grants = members.filter_map(|(key, standing)| {
            let Standing::Holds(token) = standing else { return None };
            let holder = self.locks.get(key)?.holders.get(token)?;
            Some((key.name.clone(), holder.grant(*token, request.number)))
        });
        Outcome::GrantedSet(grants.collect())
    }

    /// Grants a set that waits, lock by lock in the order of the names.
    pub(super) fn grant_set(&mut self, request: RequestId, sequence: u64) {
        for key in self.members_waiting(request, sequence) {
            let waiter = self.locks.get(&key).and_then(|lock| lock.queue.get(&sequence));
            let Some(waiter) = waiter else { continue };
            let (holder, entrance) = (self.holder_of(waiter), Entrance::from_queue(sequence, waiter));
            self.remove_waiter(&key, sequence);
            self.hold(&key, holder, entrance);
            self.look_at(&key, sequence);
        }
    }

    /// Takes a set out of all its queues without a grant.
    pub(super) fn leave_set(&mut self, request: RequestId, sequence: u64, why: LeaveReason, answer: &Outcome) {
        for key in self.members_waiting(request, sequence) {
            self.leave_one(&key, sequence, why, answer.clone());
        }
    }

    /// Withdraws a set: from its queues, or what it still holds.
    pub(super) fn withdraw_set(&mut self, request: RequestId) -> Outcome {
        let session = self.sessions.get(&request.session);
        let members = session.and_then(|session| session.sets.get(&request.number)).cloned().unwrap_or_default();
        for (key, standing) in members {
            match standing {
                Standing::Waits(sequence) => self.leave(&key, sequence, LeaveReason::Withdrawn),
                Standing::Holds(token) => {
                    let holder = self.locks.get(&key).and_then(|lock| lock.holders.get(&token));
                    if holder.is_some_and(|holder| 1 < holder.depth()) {
                        self.leave_hold(&key, token, request.number, Outcome::Withdrawn);
                    } else {
                        self.end_hold(&key, token, EndReason::Cancelled, Some(Outcome::Withdrawn));
                    }
                }
            }
        }
        Outcome::Withdrawn
    }
}

impl HolderExtras {
    /// What a hold of a set keeps.
    pub(super) fn of_set(choices: Option<&Extras>) -> Option<Box<Self>> {
        let mut extras = choices.and_then(Self::of).unwrap_or_default();
        extras.set = true;
        Some(extras)
    }
}
