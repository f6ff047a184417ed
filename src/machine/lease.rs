//! Token leases: locks without a session, proven by a handle, each with its own deadline.
//!
//! A take is a request for such a lease. A take that waits or holds is found in its queue or among the holders. Only a
//! finished take has a separate record.

use std::sync::Arc;

use super::Machine;
use super::acquire::Admission;
use super::apply::is_overtaken;
use super::requests::of_take;
use crate::limits;
use crate::model::{
    Access, BoundAdvice, Claim, DurationField, EndReason, Fairness, FencingToken, Grant, Handle, LeaseRequestId,
    LockKey, LogTime, Outcome, Patience, Principal, QuotaKind, Refusal, SessionId, TakeLease, WaitEndReason,
};
use crate::state::{
    Change, ClaimState, DeadlineOf, FinishedLease, Holder, LeaseWanted, Purpose, RecordKey, Request, Waiter,
};

/// What the machine knows about a take.
#[derive(Debug, Clone, Copy)]
pub(super) enum KnownTake<'a> {
    /// The take waits in the queue, under this sequence number.
    Waits(u64, &'a Waiter),
    /// The take holds the lock, with this token.
    Holds(FencingToken, &'a Holder),
    Finished(&'a FinishedLease),
}

impl KnownTake<'_> {
    /// Whether this is the handle of the take.
    pub(super) fn is_proven_by(self, handle: &Handle) -> bool {
        match self {
            KnownTake::Waits(_, waiter) => waiter.take_handle().as_ref() == Some(handle),
            KnownTake::Holds(_, holder) => holder.take_handle().as_ref() == Some(handle),
            KnownTake::Finished(take) => take.handle == *handle,
        }
    }

    /// Whether a take with this fingerprint is a different request under the same id. Returns `false` for a take that
    /// was cancelled before it arrived, which has no fingerprint.
    pub(super) fn asks_otherwise(self, fingerprint: u64) -> bool {
        let known = match self {
            KnownTake::Waits(_, waiter) => Some(waiter.request.fingerprint),
            KnownTake::Holds(_, holder) => Some(holder.request.fingerprint),
            KnownTake::Finished(take) => take.fingerprint,
        };
        known.is_some_and(|known| known != fingerprint)
    }
}

impl Machine {
    /// Grants or queues a take. The machine remembers the refusal of a new take, too, so that a late duplicate is not
    /// granted after its caller was refused. The exceptions are a take that is too late, and one that exceeds the quota
    /// of takes.
    pub(super) fn take_lease(
        &mut self,
        principal: &Principal,
        take: &TakeLease,
        since: Option<LogTime>,
    ) -> Result<Outcome, Refusal> {
        self.expire_due_at(&take.lock);
        let fingerprint = of_take(take);
        if let Some(known) = self.repeated_take(take, fingerprint)? {
            return Ok(known);
        }
        self.too_late(since)?;
        self.room_for_a_take(&take.lock)?;
        match self.admit_take(take) {
            Ok(admission) => Ok(self.new_take(principal, take, fingerprint, admission)),
            Err(refusal) => {
                let outcome = Outcome::Refused(in_brief(refusal.clone()));
                self.note_unseen(&take.lock, take.take, take.handle.clone(), Some(fingerprint), outcome);
                Err(refusal)
            }
        }
    }

    /// Returns a refusal if a request, first sent at `since`, is older than the machine's memory of takes. A younger
    /// take that is unknown was never decided, because the machine remembers each take at least that long after it
    /// decided the first copy.
    pub(super) fn too_late(&self, since: Option<LogTime>) -> Result<(), Refusal> {
        let age_ms = since.map_or(0, |since| self.state.globals.now.ms_since(since));
        if age_ms <= limits::SESSIONLESS_AGE_MS_MAX {
            return Ok(());
        }
        Err(Refusal::OutOfBounds {
            field: DurationField::Age,
            low: 0,
            high: limits::SESSIONLESS_AGE_MS_MAX,
            value: age_ms,
            advice: BoundAdvice::NewRequest,
        })
    }

    /// Returns a refusal if the namespace has no room for another take.
    pub(super) fn room_for_a_take(&self, key: &LockKey) -> Result<(), Refusal> {
        self.quotas.one_more(QuotaKind::Takes, self.state.used(&key.namespace).takes)
    }

    fn admit_take(&self, take: &TakeLease) -> Result<Admission, Refusal> {
        self.lease_in_bounds(DurationField::Lease, take.lease_ms)?;
        let key = &take.lock;
        if self.state.lock(key).is_some_and(|lock| lock.handles.contains_key(&take.handle)) {
            // Another take of this lock has the same handle, but a handle proves only one take of a lock.
            return Err(self.held_by_another(key, take.access.mode, None));
        }
        self.admission(key, take.access, take.patience, Fairness::Fair, None)
    }

    /// Remembers a take that never waited or held: it was refused, or cancelled before it arrived. Unlike a take that
    /// waited or held, it is not counted yet.
    pub(super) fn note_unseen(
        &mut self,
        key: &LockKey,
        id: LeaseRequestId,
        handle: Handle,
        fingerprint: Option<u64>,
        outcome: Outcome,
    ) {
        self.state.index.count(&key.namespace, |usage| &mut usage.takes, Change::Came);
        self.finish_take(key, id, handle, fingerprint, outcome);
    }

    /// Remembers the answer to a finished take for as long as a late duplicate of it may still arrive.
    pub(super) fn finish_take(
        &mut self,
        key: &LockKey,
        id: LeaseRequestId,
        handle: Handle,
        fingerprint: Option<u64>,
        outcome: Outcome,
    ) {
        let forget = self.state.globals.now.after_ms(limits::SESSIONLESS_MEMORY_MS);
        self.state.finished_leases.insert((key.clone(), id), FinishedLease { handle, fingerprint, outcome, forget });
        self.state.dirty.born(RecordKey::FinishedLease(key.clone(), id));
        self.state.index.move_deadline(None, Some(forget), DeadlineOf::FinishedLease(key.clone(), id));
    }

    /// Finds a take in the queue, among the holders or among the finished takes.
    pub(super) fn known_take(&self, key: &LockKey, id: LeaseRequestId) -> Option<KnownTake<'_>> {
        let live = self.state.lock(key).and_then(|lock| Some((lock, lock.leases.get(&id)?)));
        match live {
            Some((lock, ClaimState::Waiting(sequence))) => Some(KnownTake::Waits(*sequence, lock.queue.get(sequence)?)),
            Some((lock, ClaimState::Holding(token))) => Some(KnownTake::Holds(*token, lock.holders.get(token)?)),
            None => self.state.finished_leases.get(&(key.clone(), id)).map(KnownTake::Finished),
        }
    }

    fn new_take(&mut self, principal: &Principal, take: &TakeLease, fingerprint: u64, admission: Admission) -> Outcome {
        let key = &take.lock;
        let Access { mode, limit } = take.access;
        self.state.lock_or_new(key, mode.kind(), limit).handles.insert(take.handle.clone(), take.take);
        self.state.index.count(&key.namespace, |usage| &mut usage.takes, Change::Came);
        let mut waiter = self.lease_waiter(principal, take, fingerprint);
        match admission {
            Admission::Grant | Admission::Enter(_) => {
                let holder = Holder::from_waiter(waiter, &self.state.globals);
                let deadline = holder.leased_until();
                let token = self.hold(key, holder, self.at_once(Fairness::Fair));
                Outcome::Granted(Grant { token, deadline, ends: None, waited_ms: 0 })
            }
            Admission::Queue => {
                // After a wait, the lease is short until the client refreshes it.
                if let (Some(lease), Some(claim_ms)) = (&mut waiter.lease, take.claim_ms) {
                    lease.ms = lease.ms.min(claim_ms.max(limits::LEASE_MS_MIN));
                }
                let sequence = self.next_sequence();
                self.enqueue(key, sequence, waiter);
                Outcome::Queued(self.place(key, sequence))
            }
        }
    }

    /// The answer to a take that is known. A repetition gets the same answer as the first copy.
    fn repeated_take(&self, take: &TakeLease, fingerprint: u64) -> Result<Option<Outcome>, Refusal> {
        let Some(known) = self.known_take(&take.lock, take.take) else { return Ok(None) };
        if !known.is_proven_by(&take.handle) {
            return Err(Refusal::WrongHandle);
        }
        if known.asks_otherwise(fingerprint) {
            return Err(Refusal::RequestReused { claim: Claim::Lease(take.take) });
        }
        Ok(Some(self.take_outcome(&take.lock, known)))
    }

    pub(super) fn take_outcome(&self, key: &LockKey, take: KnownTake<'_>) -> Outcome {
        match take {
            KnownTake::Finished(take) => take.outcome.clone(),
            KnownTake::Waits(sequence, _) => Outcome::Queued(self.place(key, sequence)),
            KnownTake::Holds(token, holder) => {
                let deadline = holder.leased_until();
                Outcome::Granted(Grant { token, deadline, ends: None, waited_ms: holder.waited_ms })
            }
        }
    }

    /// Cancels a take: removes it from the queue, or releases it if it was granted. If the take has not arrived yet,
    /// records its id, so that it is not granted later.
    ///
    /// A cancel that is too late records nothing, because its take would be too late as well.
    pub(super) fn cancel_take(
        &mut self,
        key: &LockKey,
        id: LeaseRequestId,
        handle: &Handle,
        since: Option<LogTime>,
    ) -> Result<Outcome, Refusal> {
        self.expire_due_at(key);
        let known = self.known_take(key, id);
        if known.is_some_and(|take| !take.is_proven_by(handle)) {
            return Err(Refusal::WrongHandle);
        }
        match known {
            Some(KnownTake::Waits(sequence, _)) => self.end_wait(key, sequence, WaitEndReason::Withdrawn),
            Some(KnownTake::Holds(token, _)) => {
                self.end_hold(key, token, EndReason::Cancelled, Some(Outcome::Withdrawn));
            }
            Some(KnownTake::Finished(_)) => {}
            None if self.too_late(since).is_err() => {}
            None => {
                self.room_for_a_take(key)?;
                self.note_unseen(key, id, handle.clone(), None, Outcome::Withdrawn);
            }
        }
        Ok(Outcome::Withdrawn)
    }

    /// Releases the lease that this handle proves.
    pub(super) fn drop_lease(
        &mut self,
        key: &LockKey,
        handle: &Handle,
        since: Option<LogTime>,
    ) -> Result<Outcome, Refusal> {
        self.expire_due_at(key);
        self.too_late(since)?;
        let (token, _) = self.lease_of(key, handle).ok_or_else(|| self.not_proven(key))?;
        self.end_hold(key, token, EndReason::Released, None);
        Ok(Outcome::Released { left: 0 })
    }

    /// The grant that this handle proves, and its deadline.
    pub(super) fn lease_of(&self, key: &LockKey, handle: &Handle) -> Option<(FencingToken, LogTime)> {
        let token = self.proven_hold(key, handle)?;
        Some((token, self.state.holder(key, token)?.leased_until()?))
    }

    /// The hold that this handle proves: a lease, or a document.
    pub(super) fn proven_hold(&self, key: &LockKey, handle: &Handle) -> Option<FencingToken> {
        let lock = self.state.lock(key)?;
        match lock.leases.get(lock.handles.get(handle)?)? {
            ClaimState::Holding(token) => Some(*token),
            ClaimState::Waiting(_) => None,
        }
    }

    /// The deadline of the lease on this session's hold.
    pub(super) fn leased_until(&self, key: &LockKey, session: SessionId, token: FencingToken) -> Option<LogTime> {
        let holder = self.state.holder(key, token)?;
        holder.leased_until().filter(|_| holder.request.claim.session() == Some(session))
    }

    /// Extends a lease to `lease_ms` milliseconds after this entry's stamp, and returns the new deadline. If a newer
    /// attempt was applied before, changes nothing and returns the current deadline. The lease of a hold that its owner
    /// acquired several times is never shortened, because each acquire has its own length.
    pub(super) fn prolong_lease(&mut self, key: &LockKey, token: FencingToken, lease_ms: u64, attempt: u64) -> LogTime {
        let mut new = self.state.globals.now.after_ms(lease_ms);
        let Some(holder) = self.state.holder_mut(key, token) else { return new };
        let acquired_again = 1 < holder.depth();
        let Some(lease) = &mut holder.lease else { return new };
        if acquired_again {
            new = new.max(lease.deadline);
        }
        if is_overtaken(attempt, lease.attempt) {
            return lease.deadline;
        }
        lease.attempt = lease.attempt.max(attempt);
        let old = std::mem::replace(&mut lease.deadline, new);
        self.state.mark(RecordKey::Holder(key.clone(), token));
        self.state.index.move_deadline(Some(old), Some(new), DeadlineOf::Lease(key.clone(), token));
        new
    }

    /// Checks the length of a renewal of a session's hold. An operator may have lowered `ttl_max` since the grant, so
    /// the upper bound is the largest `ttl_max` that the cluster ever had. That is safe, because after a restore from a
    /// backup the cluster grants nothing for that long. A refusal names the current `ttl_max` as the bound.
    pub(super) fn hold_lease_in_bounds(&self, lease_ms: u64) -> Result<(), Refusal> {
        if (limits::LEASE_MS_MIN..=self.state.globals.ttl_ms_max_ever).contains(&lease_ms) {
            return Ok(());
        }
        self.lease_in_bounds(DurationField::Lease, lease_ms)
    }

    /// Checks the length of a new lease against the current `ttl_max`.
    pub(super) fn lease_in_bounds(&self, field: DurationField, lease_ms: u64) -> Result<(), Refusal> {
        let (low, high) = (limits::LEASE_MS_MIN, self.ttl_ms_bounds().1);
        if (low..=high).contains(&lease_ms) {
            return Ok(());
        }
        Err(Refusal::OutOfBounds { field, low, high, value: lease_ms, advice: BoundAdvice::HoldASession })
    }

    /// The waiter of a take. It always has a deadline, because it has no session whose end would end the wait.
    fn lease_waiter(&self, principal: &Principal, take: &TakeLease, fingerprint: u64) -> Waiter {
        let wait_ms = match take.patience {
            Patience::For { ms } => ms.min(limits::PATIENCE_MS_MAX),
            Patience::Try => limits::TRY_BEHIND_CACHED_MS,
            Patience::Session => limits::PATIENCE_MS_MAX,
        };
        let request = Request {
            claim: Claim::Lease(take.take),
            owner: None,
            mode: take.access.mode,
            principal: principal.clone(),
            metadata: Arc::new(take.metadata.clone()),
            fingerprint,
            extras: None,
        };
        let since = self.state.globals.now;
        let lease = Some(LeaseWanted { handle: Some(take.handle.clone()), ms: take.lease_ms });
        let (deadline, tries) = (Some(since.after_ms(wait_ms)), take.patience == Patience::Try);
        Waiter { request, since, deadline, lease, purpose: Purpose::Hold, tries }
    }
}

/// A refusal in the form in which it is remembered: without the views of the holder and of the ended hold, which change
/// and may have long texts.
fn in_brief(refusal: Refusal) -> Refusal {
    if let Refusal::Held { lock, .. } = refusal { Refusal::Held { lock, holder: None, closed: None } } else { refusal }
}
