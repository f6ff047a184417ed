//! Leases without a session.

use super::*;

impl Naive {
    pub(super) fn take(&mut self, principal: &Principal, take: &TakeLease, payload: Command) -> Outcome {
        if let Some(known) = self.takes.iter().find(|known| known.id == take.take && known.lock == take.lock) {
            if known.handle != take.handle {
                return Outcome::Refused(Refusal::WrongHandle);
            }
            if known.payload.as_ref().is_some_and(|known| *known != payload) {
                return Outcome::Refused(Refusal::RequestReused { claim: Claim::Lease(take.take) });
            }
            let over = known.over.as_ref().map(|(outcome, _)| outcome.clone());
            let standing = || self.standing(Some(&take.lock), Claim::Lease(take.take)).map(|(_, outcome)| outcome);
            return over.or_else(standing).expect("a take waits, holds or is over");
        }
        if let Some(refused) = self.lease_bounds(take.lease_ms) {
            return refused;
        }
        let used = |ask: &Ask| ask.lock == take.lock && ask.handle.as_ref() == Some(&take.handle);
        if self.holds.iter().any(|hold| used(&hold.ask)) || self.waits.iter().any(|wait| used(&wait.ask)) {
            return self.held_or_closed(&take.lock, take.access.mode, self.holder(&take.lock, |_| false));
        }
        let ask = Ask {
            lock: take.lock.clone(),
            claim: Claim::Lease(take.take),
            owner: None,
            mode: take.access.mode,
            limit: take.access.limit,
            metadata: take.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            handle: Some(take.handle.clone()),
            lease_ms: Some(take.lease_ms),
            extras: Extras::default(),
            set: false,
        };
        let outcome = self.admit(ask, take.patience);
        if let (Outcome::Queued(_), Some(claim_ms)) = (&outcome, take.claim_ms) {
            let ask = &mut self.waits.last_mut().expect("just queued").ask;
            ask.lease_ms = ask.lease_ms.map(|ms| ms.min(claim_ms.max(1)));
        }
        // A refused take is not remembered, because a client that polls endlessly would fill the cluster's memory.
        if !matches!(outcome, Outcome::Refused(_)) {
            let (lock, id, handle) = (take.lock.clone(), take.take, take.handle.clone());
            self.takes.push(Taken { lock, id, handle, payload: Some(payload), over: None });
        }
        outcome
    }

    /// Whether a take waits, holds or has ended.
    pub(in crate::machine::tests) fn knows(&self, lock: &LockKey, id: LeaseRequestId) -> bool {
        self.takes.iter().any(|take| take.id == id && take.lock == *lock)
    }

    pub(super) fn cancel_take(&mut self, lock: &LockKey, id: LeaseRequestId, handle: &Handle) -> Outcome {
        let until = LogTime(self.now.0 + TEN_MINUTES_MS);
        let claim = Claim::Lease(id);
        let known = self.takes.iter().find(|take| take.id == id && take.lock == *lock);
        if known.is_some_and(|take| take.handle != *handle) {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        if known.is_none() {
            let (lock, handle, over) = (lock.clone(), handle.clone(), Some((Outcome::Withdrawn, until)));
            self.takes.push(Taken { lock, id, handle, payload: None, over });
        } else if let Some(at) = self.waits.iter().position(|w| w.ask.claim == claim && w.ask.lock == *lock) {
            self.end_wait(at, Outcome::Withdrawn);
        } else if let Some(at) = self.holds.iter().position(|h| h.ask.claim == claim && h.ask.lock == *lock) {
            self.end_hold(at, EndReason::Cancelled, Some(Outcome::Withdrawn));
        }
        Outcome::Withdrawn
    }
}
