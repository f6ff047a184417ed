//! Queues: who is next, what a grant is, and how a hold or a wait ends. Every change of holders goes through here.

use std::collections::BTreeMap;

use super::expiry::Due;
use super::state::{Finished, Holder, HolderExtras, Lease, Lock, Standing, TakeState, Waiter, permits_of};
use super::{Machine, RecordKey};
use crate::model::{Claim, EndReason, EventKind, FencingToken, LeaveReason, LockKey, Outcome, SessionId};

impl Machine {
    /// Looks at every touched queue until nothing more can be granted: the waiter with the lowest sequence number
    /// first, whichever lock it waits for. A waiter that has run out is ended, never granted.
    pub(super) fn grant_what_is_free(&mut self) {
        let mut heads = BTreeMap::new();
        loop {
            while let Some(key) = self.touched.pop_first() {
                if let Some(sequence) = self.next_of(&key) {
                    heads.insert(sequence, key);
                }
            }
            let Some((sequence, key)) = heads.pop_first() else { return };
            if let Some(due) = self.waiter_due(&key, sequence) {
                self.end_found(due);
                self.touched.insert(key);
            } else if self.grant_waiter(&key, sequence) {
                self.touched.insert(key);
            }
        }
    }

    /// The first of a lock's queue that can be granted or has run out; a lock that has become free is forgotten here.
    fn next_of(&mut self, key: &LockKey) -> Option<u64> {
        if self.locks.get(key)?.is_free() {
            self.forget_lock(key);
            return None;
        }
        self.next_in_queue(key)
    }

    fn forget_lock(&mut self, key: &LockKey) {
        let Some(lock) = self.locks.remove(key) else { return };
        if lock.limit.is_some() {
            self.touch(RecordKey::Semaphore(key.clone()));
        }
        self.usage_of(&key.namespace).locks -= 1;
        self.totals.locks -= 1;
    }

    /// Grants a waiter if the holders admit it.
    fn grant_waiter(&mut self, key: &LockKey, sequence: u64) -> bool {
        let Some(lock) = self.locks.get_mut(key) else { return false };
        let Some(mode) = lock.queue.get(&sequence).map(|waiter| waiter.mode) else { return false };
        if !lock.admits(mode) {
            return false;
        }
        let Some(waiter) = self.remove_waiter(key, sequence) else { return false };
        let now = self.globals.now;
        let extras = waiter.extras.as_deref().and_then(HolderExtras::of);
        let lease = match &waiter.lease {
            Some((handle, lease_ms)) => Some((Some(handle.clone()), *lease_ms)),
            None => waiter.choices().lease_ms.map(|lease_ms| (None, lease_ms)),
        };
        let lease = lease.map(|(handle, lease_ms)| Lease { handle, deadline: now.after_ms(lease_ms) });
        let holder = Holder {
            claim: waiter.claim,
            owner: waiter.owner,
            mode: waiter.mode,
            principal: waiter.principal,
            metadata: waiter.metadata,
            since: now,
            waited_ms: now.ms_since(waiter.since),
            fingerprint: waiter.fingerprint,
            lease,
            extras,
        };
        self.hold(key, holder);
        true
    }

    /// Makes it a holder of the lock, with a new token larger than all before.
    pub(super) fn hold(&mut self, key: &LockKey, holder: Holder) -> FencingToken {
        self.globals.tokens += 1;
        let token = FencingToken::new(self.globals.epoch, self.globals.tokens);
        let (claim, mode, waited_ms) = (holder.claim, holder.mode, holder.waited_ms);
        if let Some(lease) = &holder.lease {
            let deadline = lease.deadline;
            self.move_due(None, Some(deadline), Due::Lease(key.clone(), token));
        }
        if let Some(lock) = self.locks.get_mut(key) {
            lock.permits_held += permits_of(mode);
            lock.holders.insert(token, holder);
        }
        self.totals.holders += 1;
        self.touch(RecordKey::Holder(key.clone(), token));
        self.stands(key, claim, Standing::Holds(token));
        let kind = EventKind::Granted { lock: key.clone(), claim, token, mode, waited_ms };
        self.event(Some(key.namespace.clone()), kind);
        token
    }

    /// Puts it at the end of the lock's queue; answers its sequence number.
    pub(super) fn enqueue(&mut self, key: &LockKey, waiter: Waiter) -> u64 {
        self.globals.sequences += 1;
        let sequence = self.globals.sequences;
        let (claim, deadline) = (waiter.claim, waiter.deadline);
        self.move_due(None, deadline, Due::Wait(key.clone(), sequence));
        if let Some(lock) = self.locks.get_mut(key) {
            lock.barging += usize::from(waiter.barges());
            lock.queue.insert(sequence, waiter);
        }
        self.totals.waiters += 1;
        self.usage_of(&key.namespace).waiters += 1;
        self.touch(RecordKey::Waiter(key.clone(), sequence));
        self.stands(key, claim, Standing::Waits(sequence));
        self.event(Some(key.namespace.clone()), EventKind::Queued { lock: key.clone(), claim, sequence });
        sequence
    }

    /// Notes with the claim's session or take where it stands now.
    fn stands(&mut self, key: &LockKey, claim: Claim, standing: Standing) {
        match claim {
            Claim::Request(request) => {
                if let Some(session) = self.sessions.get_mut(&request.session) {
                    session.live.insert(request.number, (key.clone(), standing));
                }
            }
            Claim::Take(take) => {
                if let Some(take) = self.takes.get_mut(&(key.clone(), take)) {
                    take.state = TakeState::Live(standing);
                }
                self.touch(RecordKey::Take(key.clone(), take));
            }
        }
    }

    /// Ends a hold. What a repeated request is told is `answer`, or that the hold ended for this reason.
    pub(super) fn end_hold(&mut self, key: &LockKey, token: FencingToken, reason: EndReason, answer: Option<Outcome>) {
        let Some(lock) = self.locks.get_mut(key) else { return };
        let Some(holder) = lock.holders.remove(&token) else { return };
        lock.permits_held -= permits_of(holder.mode);
        if let Some(lease) = &holder.lease {
            if let Some(handle) = &lease.handle {
                lock.takes.remove(handle);
            }
            self.move_due(Some(lease.deadline), None, Due::Lease(key.clone(), token));
        }
        self.totals.holders -= 1;
        self.touch(RecordKey::Holder(key.clone(), token));
        self.touched.insert(key.clone());
        let (lock, claim) = (key.clone(), holder.claim);
        let held_ms = self.globals.now.ms_since(holder.since);
        let kind = match reason {
            EndReason::Released | EndReason::Cancelled => EventKind::Released { lock, claim, token, held_ms },
            EndReason::Expired | EndReason::Lost | EndReason::Broken => {
                EventKind::Expired { lock, claim, token, reason, held_ms }
            }
        };
        self.event(Some(key.namespace.clone()), kind);
        let answer = answer.unwrap_or(Outcome::HoldEnded { reason });
        for again in holder.extras.iter().flat_map(|extras| &extras.again) {
            self.request_is_over(claim, again.number, again.fingerprint, answer.clone());
        }
        self.claim_is_over(key, claim, holder.fingerprint, answer);
    }

    /// Takes a waiter out of its queue without a grant.
    pub(super) fn leave(&mut self, key: &LockKey, sequence: u64, why: LeaveReason) {
        let Some(waiter) = self.remove_waiter(key, sequence) else { return };
        if let (Some((handle, _)), Some(lock)) = (&waiter.lease, self.locks.get_mut(key)) {
            lock.takes.remove(handle);
        }
        self.touched.insert(key.clone());
        let kind = EventKind::Left { lock: key.clone(), claim: waiter.claim, sequence, why };
        self.event(Some(key.namespace.clone()), kind);
        let answer = match why {
            LeaveReason::TimedOut => Outcome::TimedOut,
            LeaveReason::Withdrawn | LeaveReason::SessionEnded => Outcome::Withdrawn,
        };
        self.claim_is_over(key, waiter.claim, waiter.fingerprint, answer);
    }

    fn remove_waiter(&mut self, key: &LockKey, sequence: u64) -> Option<Waiter> {
        let lock = self.locks.get_mut(key)?;
        let waiter = lock.queue.remove(&sequence)?;
        lock.barging -= usize::from(waiter.barges());
        self.move_due(waiter.deadline, None, Due::Wait(key.clone(), sequence));
        self.totals.waiters -= 1;
        self.usage_of(&key.namespace).waiters -= 1;
        self.touch(RecordKey::Waiter(key.clone(), sequence));
        Some(waiter)
    }

    /// The claim neither waits nor holds any more: its request or take remembers the answer.
    fn claim_is_over(&mut self, key: &LockKey, claim: Claim, fingerprint: u64, answer: Outcome) {
        match claim {
            Claim::Take(take) => self.take_is_over(key, take, answer),
            Claim::Request(request) => self.request_is_over(claim, request.number, fingerprint, answer),
        }
    }

    /// A request of the claim's session neither waits nor holds any more.
    pub(super) fn request_is_over(&mut self, claim: Claim, number: u64, fingerprint: u64, answer: Outcome) {
        let Some(id) = claim.session() else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.live.remove(&number);
        }
        self.remember(id, number, Finished { fingerprint: Some(fingerprint), outcome: answer });
    }

    /// The lock under this name, made where it was free.
    pub(super) fn lock_in_use(&mut self, key: &LockKey, kind: crate::model::Kind, limit: Option<u32>) -> &mut Lock {
        if !self.locks.contains_key(key) {
            self.usage_of(&key.namespace).locks += 1;
            self.totals.locks += 1;
            if limit.is_some() {
                self.touch(RecordKey::Semaphore(key.clone()));
            }
        }
        self.locks.entry(key.clone()).or_insert_with(|| Lock::new(kind, limit))
    }

    /// When a session ends, for views of what it holds.
    pub(super) fn session_deadline(&self, session: Option<SessionId>) -> Option<crate::model::LogTime> {
        session.and_then(|id| self.sessions.get(&id)).map(|session| session.record.deadline)
    }
}
