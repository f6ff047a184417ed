//! Acquire and cancel, for sessions: one lock, or several that are granted together or queued together, under one
//! sequence number in every queue.

use std::sync::Arc;

use super::Machine;
use super::requests::of_acquire;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    Access, Acquire, Claim, DurationField, EndReason, Extras, Fairness, FencingToken, Grant, LockKey, LockName,
    Metadata, Mode, Outcome, Patience, Place, Principal, QuotaKind, Reentry, Refusal, RequestId, SessionId, SmallMap,
    WaitEndReason,
};
use crate::state::{ClaimState, Finished, Holder, LeaseWanted, Purpose, Request, Waiter};

/// The locks of one acquire with their full names, and how each is to be held.
type Members = SmallMap<LockKey, Access>;

impl Machine {
    pub(super) fn acquire(&mut self, principal: &Principal, acquire: &Acquire) -> Outcome {
        let fingerprint = of_acquire(acquire);
        let namespace = match self.begin(acquire.request, acquire.answered_below, fingerprint) {
            Ok(namespace) => namespace,
            Err(known) => return known,
        };
        let key = |name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        let members: Members = acquire.locks.iter().map(|(name, access)| (key(name), *access)).collect();
        members.keys().for_each(|key| self.expire_due_at(key));
        let asking = Asking { principal, acquire, members: &members, fingerprint };
        let outcome = self.admit(&asking).and_then(|admission| match admission {
            Admission::Grant => Ok(self.grant_at_once(&asking)),
            Admission::Enter(token) => self.reenter(&asking, token),
            Admission::Queue => self.queue_up(&asking).map(Outcome::Queued),
        });
        // Active requests are found through their claims, so only a refusal is recorded as finished here.
        outcome.unwrap_or_else(|refusal| self.finish(acquire.request, fingerprint, Outcome::Refused(refusal)))
    }

    /// The answer to a repeated request that waits or holds. It is found through its claims, independently of the
    /// request window.
    pub(super) fn live_request(&self, request: RequestId, fingerprint: u64) -> Option<Outcome> {
        if faults::on(Fault::RetriesRunAgain) {
            return None;
        }
        let session = self.state.session(request.session)?;
        let (key, standing) = session.claims_of(request.number).next()?;
        let lock = self.state.lock(key)?;
        let known = match standing {
            ClaimState::Waiting(sequence) => lock.queue.get(&sequence)?.request.fingerprint,
            ClaimState::Holding(token) => {
                let mut entries = lock.holders.get(&token)?.entries();
                entries.find(|entered| entered.number == request.number)?.fingerprint
            }
        };
        let outcome = self.claim_outcome(request)?;
        let reused = Outcome::Refused(Refusal::RequestReused { claim: Claim::Request(request) });
        Some(if known == fingerprint { outcome } else { reused })
    }

    /// The current outcome of a request that waits or holds.
    pub(super) fn claim_outcome(&self, request: RequestId) -> Option<Outcome> {
        let session = self.state.session(request.session)?;
        let (key, state) = session.claims_of(request.number).next()?;
        let lock = self.state.lock(key)?;
        match state {
            ClaimState::Waiting(sequence) => Some(Outcome::Queued(match lock.queue.get(&sequence)?.purpose {
                Purpose::Set => self.place_of_set(request, (key, sequence)),
                Purpose::Hold | Purpose::Upgrade(_) => self.place(key, sequence),
            })),
            ClaimState::Holding(token) => {
                let holder = lock.holders.get(&token)?;
                let as_set = holder.in_set() && holder.request.claim == Claim::Request(request);
                Some(if as_set {
                    self.grants_of_set(request)
                } else {
                    Outcome::Granted(holder.grant(token, request.number))
                })
            }
        }
    }

    /// Whether a new request may hold all its locks now, must wait for all of them, or is refused.
    fn admit(&self, asking: &Asking<'_>) -> Result<Admission, Refusal> {
        let acquire = asking.acquire;
        acquire.lease_ms.map_or(Ok(()), |ms| self.lease_in_bounds(DurationField::Lease, ms))?;
        let limit = limits::LOCKS_A_SET_MAX as u64;
        let more = asking.members.len() as u64;
        let more = more.checked_sub(1).ok_or(Refusal::Quota { what: QuotaKind::LocksOfSet, limit })?;
        self.quotas.one_more(QuotaKind::LocksOfSet, more)?;
        let entered = self.reentry(asking)?;
        let live = self.state.session(acquire.request.session).map_or(0, |session| session.locks as u64);
        self.quotas.one_more(QuotaKind::LocksOfSession, live + more)?;
        match entered {
            Some(token) => Ok(Admission::Enter(token)),
            None => self.admit_all(asking),
        }
    }

    /// Like [`admission`](Self::admission), but for all locks of an acquire together.
    fn admit_all(&self, asking: &Asking<'_>) -> Result<Admission, Refusal> {
        let (acquire, fairness) = (asking.acquire, asking.fairness());
        let mut waits = false;
        for (key, access) in asking.members {
            match self.admission(key, *access, acquire.patience, fairness, Some(acquire.request.session))? {
                Admission::Grant | Admission::Enter(_) => {}
                Admission::Queue => waits = true,
            }
        }
        let admission = if waits { Admission::Queue } else { Admission::Grant };
        if asking.acquire.is_set() {
            self.fits_quotas(asking.members, &admission)?;
        }
        Ok(admission)
    }

    /// Refuses a set that exceeds the namespace's quotas. One lock of the set was counted by the checks of each single
    /// lock, and locks that are in use are counted already.
    fn fits_quotas(&self, members: &Members, admission: &Admission) -> Result<(), Refusal> {
        let Some(usage) = members.keys().next().map(|key| self.state.used(&key.namespace)) else { return Ok(()) };
        let free = members.keys().filter(|key| !self.state.locks.contains_key(key)).count() as u64;
        if let Some(more) = free.checked_sub(1) {
            self.quotas.one_more(QuotaKind::Locks, usage.locks + more)?;
        }
        match admission {
            Admission::Queue => self.quotas.one_more(QuotaKind::Waiters, usage.waiters + members.len() as u64 - 1),
            Admission::Grant | Admission::Enter(_) => Ok(()),
        }
    }

    fn grant_at_once(&mut self, asking: &Asking<'_>) -> Outcome {
        let metadata = self.share_metadata(asking.acquire.request, &asking.acquire.metadata);
        let entrance = self.at_once(asking.fairness());
        let mut granted = SmallMap::new();
        for (key, access) in asking.members {
            let holder = Holder::from_waiter(self.new_waiter(asking, access.mode, &metadata), &self.state.globals);
            let (deadline, ends) = (holder.leased_until(), holder.ends());
            self.state.lock_or_new(key, access.mode.kind(), access.limit);
            let token = self.hold(key, holder, entrance);
            granted.insert(&key.name, Grant { token, deadline, ends, waited_ms: 0 });
        }
        if asking.acquire.is_set() {
            return Outcome::GrantedSet(granted.into_iter().map(|(name, grant)| (name.clone(), grant)).collect());
        }
        granted.pop_first().map_or(Outcome::Withdrawn, |(_, grant)| Outcome::Granted(grant))
    }

    /// Adds the request to the queues of all its locks, under one sequence number, unless it would close a cycle there.
    fn queue_up(&mut self, asking: &Asking<'_>) -> Result<Place, Refusal> {
        let metadata = self.share_metadata(asking.acquire.request, &asking.acquire.metadata);
        let events = self.events.len();
        let sequence = self.next_sequence();
        for (key, access) in asking.members {
            let waiter = self.new_waiter(asking, access.mode, &metadata);
            self.state.lock_or_new(key, access.mode.kind(), access.limit);
            self.enqueue(key, sequence, waiter);
        }
        match asking.members.only() {
            Some((key, _)) => {
                self.refuse_cycle(std::slice::from_ref(key), sequence, events)?;
                Ok(self.place(key, sequence))
            }
            None => {
                let keys: Vec<LockKey> = asking.members.keys().cloned().collect();
                self.refuse_cycle(&keys, sequence, events)?;
                Ok(self.place_of_set(asking.acquire.request, (&keys[0], sequence)))
            }
        }
    }

    /// The checks that acquires and takes share: kind, limits, quotas, queue.
    pub(super) fn admission(
        &self,
        key: &LockKey,
        access: Access,
        patience: Patience,
        fairness: Fairness,
        session: Option<SessionId>,
    ) -> Result<Admission, Refusal> {
        if patience == Patience::Try {
            self.open_for_grants()?;
        }
        let Some(lock) = self.state.lock(key) else {
            self.free_name(key, access)?;
            if !self.is_closed() {
                return Ok(Admission::Grant);
            }
            self.quotas.one_more(QuotaKind::Waiters, self.state.used(&key.namespace).waiters)?;
            return Ok(Admission::Queue);
        };
        if lock.kind != access.mode.kind() {
            return Err(Refusal::KindMismatch { lock: key.clone(), kind: lock.kind });
        }
        if let (Mode::Permits(count), Some(limit)) = (access.mode, lock.limit) {
            within_limit(key, count, access.limit, limit)?;
        }
        if !self.is_closed() && self.may_enter(key, lock, access.mode, fairness, session) {
            return self.quotas.one_more(QuotaKind::HoldersOfLock, lock.kept()).map(|()| Admission::Grant);
        }
        if patience == Patience::Try && !lock.is_first_behind_cached() {
            return Err(self.held_by_another(key, access.mode, None));
        }
        self.quotas.one_more(QuotaKind::WaitersOfLock, lock.queue.len() as u64)?;
        self.quotas.one_more(QuotaKind::Waiters, self.state.used(&key.namespace).waiters)?;
        Ok(Admission::Queue)
    }

    fn free_name(&self, key: &LockKey, access: Access) -> Result<(), Refusal> {
        if let Mode::Permits(count) = access.mode {
            let limit = access.limit.ok_or_else(|| Refusal::LimitUnknown { lock: key.clone() })?;
            within_limit(key, count, None, limit)?;
        }
        self.quotas.one_more(QuotaKind::Locks, self.state.used(&key.namespace).locks)
    }

    fn new_waiter(&self, asking: &Asking<'_>, mode: Mode, metadata: &Arc<Metadata>) -> Waiter {
        let Asking { principal, acquire, fingerprint, .. } = *asking;
        let request = Request {
            claim: Claim::Request(acquire.request),
            owner: acquire.owner.clone(),
            mode,
            principal: principal.clone(),
            metadata: Arc::clone(metadata),
            fingerprint,
            extras: asking.extras(),
        };
        let (since, deadline) = (self.state.globals.now, self.wait_deadline(acquire.patience));
        let lease = acquire.lease_ms.map(|ms| LeaseWanted { handle: None, ms });
        let purpose = if acquire.is_set() { Purpose::Set } else { Purpose::Hold };
        let tries = acquire.patience == Patience::Try;
        Waiter { request, since, deadline, lease, purpose, tries }
    }

    /// Withdraws what a request holds, and returns the outcome. The hold stays if other requests of its owner have it
    /// too. A granted upgrade is not withdrawn: its grant is the outcome, because the shared hold that its caller knows
    /// has ended.
    fn withdraw_hold(&mut self, key: &LockKey, token: FencingToken, number: u64) -> Outcome {
        let Some(holder) = self.state.holder(key, token) else { return Outcome::Withdrawn };
        if holder.was_upgraded_by(number) {
            return Outcome::Granted(holder.grant(token, number));
        }
        if 1 < holder.depth() {
            self.leave_hold(key, token, number, Outcome::Withdrawn);
        } else {
            self.end_hold(key, token, EndReason::Cancelled, Some(Outcome::Withdrawn));
        }
        Outcome::Withdrawn
    }

    /// Cancels a request: removes it from its queues, or releases it if it was granted. An unseen number is used up, so
    /// that an acquire that arrives later is answered with *withdrawn*.
    pub(super) fn cancel(&mut self, request: RequestId) -> Result<Outcome, Refusal> {
        self.live_session(request.session)?;
        self.expire_due_of(request);
        let claims: Vec<_> = self.state.claims_of(request).map(|(key, state)| (key.clone(), state)).collect();
        let finished =
            self.state.session(request.session).is_none_or(|session| session.finished.contains_key(&request.number));
        if claims.is_empty() && !finished && !faults::on(Fault::CancelForgotten) {
            let burnt = Finished { fingerprint: None, outcome: Outcome::Withdrawn };
            self.record_finished(request.session, request.number, burnt);
        }
        let mut outcome = Outcome::Withdrawn;
        for (key, state) in claims {
            match state {
                ClaimState::Waiting(sequence) => self.end_wait(&key, sequence, WaitEndReason::Withdrawn),
                ClaimState::Holding(token) => outcome = self.withdraw_hold(&key, token, request.number),
            }
        }
        Ok(outcome)
    }
}

/// An acquire with everything that its steps need.
pub(super) struct Asking<'a> {
    pub(super) principal: &'a Principal,
    pub(super) acquire: &'a Acquire,
    pub(super) members: &'a Members,
    pub(super) fingerprint: u64,
}

impl Asking<'_> {
    /// What happens if its owner holds the lock already. A set never acquires a hold again.
    pub(super) fn reentry(&self) -> Reentry {
        if self.acquire.is_set() { Reentry::Refuse } else { self.acquire.choices().reentry }
    }

    /// Whether the request may overtake others. A set never barges.
    fn fairness(&self) -> Fairness {
        if self.acquire.is_set() { Fairness::Fair } else { self.acquire.choices().fairness }
    }

    /// The request's choices, without those that a set cannot have. A choice that conflicts with *cached* removes
    /// *cached*.
    fn extras(&self) -> Option<Box<Extras>> {
        let mut extras = self.acquire.extras.clone()?;
        (extras.reentry, extras.fairness) = (self.reentry(), self.fairness());
        extras.cached = self.acquire.is_cached();
        Some(extras)
    }
}

pub(super) enum Admission {
    /// The request holds the lock at once.
    Grant,
    /// The request acquires its owner's hold again, which has this token.
    Enter(FencingToken),
    /// The request waits at the end of the queue.
    Queue,
}

fn within_limit(key: &LockKey, count: u32, asked: Option<u32>, limit: u32) -> Result<(), Refusal> {
    if let Some(asked) = asked.filter(|asked| *asked != limit) {
        return Err(Refusal::LimitMismatch { lock: key.clone(), limit, asked });
    }
    if limit < count || count == 0 {
        return Err(Refusal::LimitExceeded { lock: key.clone(), limit, asked: count });
    }
    Ok(())
}
