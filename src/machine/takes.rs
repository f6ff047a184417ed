//! Token leases: locks without a session, proven by a handle, with an end of their own.

use std::sync::Arc;

use super::acquire::Admission;
use super::apply::is_overtaken;
use super::expiry::Due;
use super::requests::of_take;
use super::state::{Holder, LeaseWanted, Purpose, Request, Standing, Take, TakeState, Waiter, kind_of};
use super::{Machine, RecordKey};
use crate::limits;
use crate::model::{
    Access, BoundAdvice, Claim, DurationField, EndReason, Fairness, FencingToken, Grant, Handle, LeaveReason, LockKey,
    LogTime, Outcome, Patience, Principal, QuotaKind, Refusal, SessionId, TakeId, TakeLease,
};

impl Machine {
    /// What was refused is remembered, too: a late duplicate must not be granted after its caller was told no. Only a
    /// take that comes too late, or for which there is no room in the memory, leaves nothing.
    pub(super) fn take_lease(&mut self, principal: &Principal, take: &TakeLease, since: Option<LogTime>) -> Outcome {
        self.settle(&take.lock);
        let fingerprint = of_take(take);
        if let Some(outcome) = self.known_take(take, fingerprint) {
            return outcome;
        }
        if let Err(refusal) = self.too_late(since).and_then(|()| self.room_for_a_take(&take.lock)) {
            return Outcome::Refused(refusal);
        }
        match self.admit_take(take) {
            Ok(admission) => self.new_take(principal, take, fingerprint, admission),
            Err(refusal) => {
                let outcome = Outcome::Refused(in_brief(refusal.clone()));
                self.note_take(&take.lock, take.take, &take.handle, Some(fingerprint));
                self.take_is_over(&take.lock, take.take, outcome);
                Outcome::Refused(refusal)
            }
        }
    }

    /// The machine remembers a take for at least as long after its first copy was decided, so one that is unknown and
    /// younger than that was never decided.
    pub(super) fn too_late(&self, since: Option<LogTime>) -> Result<(), Refusal> {
        let age_ms = since.map_or(0, |since| self.globals.now.ms_since(since));
        if age_ms <= limits::SESSIONLESS_AGE_MS_MAX {
            return Ok(());
        }
        Err(Refusal::OutOfBounds {
            field: DurationField::Age,
            low: 0,
            high: limits::SESSIONLESS_AGE_MS_MAX,
            value: age_ms,
            advice: BoundAdvice::AskAnew,
        })
    }

    pub(super) fn room_for_a_take(&self, key: &LockKey) -> Result<(), Refusal> {
        self.quotas.one_more(QuotaKind::Takes, self.used(&key.namespace).takes)
    }

    fn admit_take(&self, take: &TakeLease) -> Result<Admission, Refusal> {
        if let Some(refusal) = self.lease_out_of_bounds(DurationField::Lease, take.lease_ms) {
            return Err(refusal);
        }
        let key = &take.lock;
        if self.locks.get(key).is_some_and(|lock| lock.takes.contains_key(&take.handle)) {
            return Err(Refusal::Held { lock: key.clone(), holder: self.one_holder(key).map(Box::new) });
        }
        self.admission(key, take.access, take.patience, Fairness::Fair, None)
    }

    /// A record of a take. Where it stands is noted next: it waits, holds or is over.
    pub(super) fn note_take(&mut self, key: &LockKey, id: TakeId, handle: &Handle, fingerprint: Option<u64>) {
        let state = TakeState::Live(Standing::Waits(0));
        self.takes.insert((key.clone(), id), Take { handle: handle.clone(), fingerprint, state });
        self.usage_of(&key.namespace).takes += 1;
    }

    fn new_take(&mut self, principal: &Principal, take: &TakeLease, fingerprint: u64, admission: Admission) -> Outcome {
        let key = &take.lock;
        let Access { mode, limit } = take.access;
        self.lock_in_use(key, kind_of(mode), limit).takes.insert(take.handle.clone(), take.take);
        self.note_take(key, take.take, &take.handle, Some(fingerprint));
        let waiter = self.lease_waiter(principal, take, fingerprint);
        match admission {
            Admission::Grant | Admission::Enter(_) => {
                let holder = Holder::from_waiter(waiter, &self.globals);
                let deadline = holder.lease.as_ref().map(|lease| lease.deadline);
                let token = self.hold(key, holder, self.at_once(Fairness::Fair));
                Outcome::Granted(Grant { token, deadline, waited_ms: 0 })
            }
            Admission::Queue => {
                let sequence = self.next_sequence();
                self.stand_in_queue(key, sequence, waiter);
                Outcome::Queued(self.place(key, sequence))
            }
        }
    }

    /// The answer to a take that is known: a repeated one is the first.
    fn known_take(&self, take: &TakeLease, fingerprint: u64) -> Option<Outcome> {
        let known = self.takes.get(&(take.lock.clone(), take.take))?;
        if known.handle != take.handle {
            return Some(Outcome::Refused(Refusal::WrongHandle));
        }
        if known.fingerprint.is_some_and(|known| known != fingerprint) {
            return Some(Outcome::Refused(Refusal::RequestReused { number: 0 }));
        }
        Some(self.take_outcome(&take.lock, known))
    }

    /// How a take stands.
    pub(super) fn take_outcome(&self, key: &LockKey, take: &Take) -> Outcome {
        match &take.state {
            TakeState::Over { outcome, .. } => outcome.clone(),
            TakeState::Live(Standing::Waits(sequence)) => Outcome::Queued(self.place(key, *sequence)),
            TakeState::Live(Standing::Holds(token)) => {
                let holder = self.locks.get(key).and_then(|lock| lock.holders.get(token));
                let deadline = holder.and_then(|holder| holder.lease.as_ref()).map(|lease| lease.deadline);
                let waited_ms = holder.map_or(0, |holder| holder.waited_ms);
                Outcome::Granted(Grant { token: *token, deadline, waited_ms })
            }
        }
    }

    /// Withdraws a take: out of the queue, or released if it was granted. An unseen id is burnt.
    ///
    /// One that comes too late burns nothing: the take that it is about would come too late as well.
    pub(super) fn cancel_take(
        &mut self,
        key: &LockKey,
        id: TakeId,
        handle: &Handle,
        since: Option<LogTime>,
    ) -> Outcome {
        self.settle(key);
        let known = self.takes.get(&(key.clone(), id)).cloned();
        if known.as_ref().is_some_and(|take| take.handle != *handle) {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        match known.map(|take| take.state) {
            Some(TakeState::Live(Standing::Waits(sequence))) => self.leave(key, sequence, LeaveReason::Withdrawn),
            Some(TakeState::Live(Standing::Holds(token))) => {
                self.end_hold(key, token, EndReason::Cancelled, Some(Outcome::Withdrawn));
            }
            Some(TakeState::Over { .. }) => {}
            None if self.too_late(since).is_err() => {}
            None => {
                if let Err(refusal) = self.room_for_a_take(key) {
                    return Outcome::Refused(refusal);
                }
                self.note_take(key, id, handle, None);
                self.take_is_over(key, id, Outcome::Withdrawn);
            }
        }
        Outcome::Withdrawn
    }

    pub(super) fn drop_lease(&mut self, key: &LockKey, handle: &Handle, since: Option<LogTime>) -> Outcome {
        self.settle(key);
        if let Err(refusal) = self.too_late(since) {
            return Outcome::Refused(refusal);
        }
        match self.lease_of(key, handle) {
            Some((token, _)) => {
                self.end_hold(key, token, EndReason::Released, None);
                Outcome::Released { left: 0 }
            }
            None => Outcome::Refused(self.not_held(key, |_| false)),
        }
    }

    /// The grant that this handle proves, and its end.
    pub(super) fn lease_of(&self, key: &LockKey, handle: &Handle) -> Option<(FencingToken, LogTime)> {
        let lock = self.locks.get(key)?;
        let take = self.takes.get(&(key.clone(), *lock.takes.get(handle)?))?;
        let TakeState::Live(Standing::Holds(token)) = take.state else { return None };
        let lease = lock.holders.get(&token)?.lease.as_ref()?;
        Some((token, lease.deadline))
    }

    /// The end of a lease that this session's hold has.
    pub(super) fn leased_until(&self, key: &LockKey, session: SessionId, token: FencingToken) -> Option<LogTime> {
        let holder = self.locks.get(key)?.holders.get(&token)?;
        let mine = holder.request.claim.session() == Some(session);
        holder.lease.as_ref().filter(|_| mine).map(|lease| lease.deadline)
    }

    /// A new end, counted from this entry's stamp; the present one where a newer attempt was applied before.
    pub(super) fn prolong_lease(&mut self, key: &LockKey, token: FencingToken, lease_ms: u64, attempt: u64) -> LogTime {
        let new = self.globals.now.after_ms(lease_ms);
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(lease) = holder.and_then(|holder| holder.lease.as_mut()) else { return new };
        if is_overtaken(attempt, lease.attempt) {
            return lease.deadline;
        }
        lease.attempt = lease.attempt.max(attempt);
        let old = std::mem::replace(&mut lease.deadline, new);
        self.touch(RecordKey::Holder(key.clone(), token));
        self.move_due(Some(old), Some(new), Due::Lease(key.clone(), token));
        new
    }

    pub(super) fn lease_out_of_bounds(&self, field: DurationField, lease_ms: u64) -> Option<Refusal> {
        let (low, high) = (limits::LEASE_MS_MIN, self.ttl_ms_bounds().1);
        let advice = BoundAdvice::HoldASession;
        (lease_ms < low || high < lease_ms).then_some(Refusal::OutOfBounds {
            field,
            low,
            high,
            value: lease_ms,
            advice,
        })
    }

    /// No session ends this wait, so it always has an end of its own.
    fn lease_waiter(&self, principal: &Principal, take: &TakeLease, fingerprint: u64) -> Waiter {
        let wait_ms = match take.patience {
            Patience::For { ms } => ms.min(limits::PATIENCE_MS_MAX),
            Patience::Session | Patience::Try => limits::PATIENCE_MS_MAX,
        };
        let request = Request {
            claim: Claim::Take(take.take),
            owner: None,
            mode: take.access.mode,
            principal: principal.clone(),
            metadata: Arc::new(take.metadata.clone()),
            fingerprint,
            extras: None,
        };
        let now = self.globals.now;
        let lease = Some(LeaseWanted { handle: Some(take.handle.clone()), ms: take.lease_ms });
        Waiter { request, since: now, deadline: Some(now.after_ms(wait_ms)), lease, purpose: Purpose::Hold }
    }
}

/// A refusal as it is remembered: without the holder's own words, which may be long, and who holds the lock changes.
fn in_brief(refusal: Refusal) -> Refusal {
    if let Refusal::Held { lock, .. } = refusal { Refusal::Held { lock, holder: None } } else { refusal }
}
