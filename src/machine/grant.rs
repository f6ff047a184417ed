//! Queues: who is next, what a grant is, and how a hold or a wait ends. Every change of holders goes through here.

use std::collections::BTreeSet;

use super::events::GrantOrigin;
use super::expiry::DeadlineOf;
use super::lock::Lock;
use super::owners::Change;
use super::queue::request_of_set;
use super::state::{ClaimState, Finished, Holder, Purpose, Waiter, permits_of};
use super::{Machine, RecordKey};
use crate::faults::{self, Fault};
use crate::model::{
    Claim, EndReason, EventKind, FencingToken, Handle, Kind, LockKey, Outcome, Principal, Reason, RequestId, SessionId,
    Subject, WaitEndReason,
};

/// How a hold ends.
pub(super) struct EndCause {
    pub(super) reason: EndReason,
    /// What a repeated request is told; that the hold ended, where nothing else is said.
    pub(super) answer: Option<Outcome>,
    /// By whom and what for, where it is broken.
    pub(super) broken: Option<(Principal, Reason)>,
}

impl Machine {
    /// Looks at every touched queue until nothing more can be granted: the waiter with the lowest sequence number
    /// first, whichever lock it waits for. A waiter that has run out is ended, never granted.
    pub(super) fn grant_ready(&mut self) {
        let mut heads = BTreeSet::new();
        loop {
            while let Some((key, from)) = self.queues_to_check.pop_first() {
                if let Some(sequence) = self.next_of(&key, from) {
                    heads.insert((sequence, key));
                }
            }
            let Some((sequence, key)) = heads.pop_first() else {
                if self.refuse_in_cycle() {
                    continue;
                }
                return self.recall_awaited();
            };
            if let Some(due) = self.waiter_due(&key, sequence) {
                self.expire(due);
                self.check_queue(&key, sequence);
            } else if self.grant_waiter(&key, sequence) {
                self.check_queue(&key, sequence);
            }
        }
    }

    /// A change at this place of the queue may let waiters from there on be granted. One ahead of it gains nothing by a
    /// grant or by a wait that ends, and need not be looked at again.
    pub(super) fn check_queue(&mut self, key: &LockKey, from: u64) {
        let known = self.queues_to_check.entry(key.clone()).or_insert(from);
        *known = from.min(*known);
    }

    /// The first waiter from this place on that can be granted or has run out; a lock that has become free is forgotten here.
    fn next_of(&mut self, key: &LockKey, from: u64) -> Option<u64> {
        if self.locks.get(key)?.is_free() {
            self.forget_lock(key);
            return None;
        }
        self.next_in_queue(key, from)
    }

    fn forget_lock(&mut self, key: &LockKey) {
        let Some(lock) = self.locks.remove(key) else { return };
        if lock.limit.is_some() {
            self.mark_dirty(RecordKey::Semaphore(key.clone()));
        }
        self.used_less(&key.namespace, |usage| usage.locks -= 1);
        self.totals.locks -= 1;
    }

    /// Grants a waiter if it could hold the lock.
    fn grant_waiter(&mut self, key: &LockKey, sequence: u64) -> bool {
        let Some(lock) = self.locks.get(key) else { return false };
        let Some(waiter) = lock.queue.get(&sequence) else { return false };
        if !faults::on(Fault::LifoQueue) && !self.eligible(key, lock, sequence, waiter) {
            return false;
        }
        if !lock.admits(waiter.request.mode) && waiter.purpose == Purpose::Hold {
            return false;
        }
        if let Some(request) = request_of_set(waiter) {
            self.grant_set(request, sequence);
            return true;
        }
        if let Purpose::Upgrade(token) = waiter.purpose {
            self.grant_upgrade(key, token);
            return true;
        }
        self.grant_to(key, sequence);
        true
    }

    /// Makes the waiter at this place a holder.
    fn grant_to(&mut self, key: &LockKey, sequence: u64) {
        let Some(waiter) = self.remove_waiter(key, sequence) else { return };
        let origin = GrantOrigin::from_queue(sequence, &waiter);
        let holder = Holder::from_waiter(waiter, &self.globals);
        self.hold(key, holder, origin);
    }

    /// Grants a set that waits, lock by lock in the order of the names.
    fn grant_set(&mut self, request: RequestId, sequence: u64) {
        for key in self.members_waiting(request, sequence) {
            self.grant_to(&key, sequence);
            self.check_queue(&key, sequence);
        }
    }

    /// Makes it a holder of the lock, with a new token larger than all before.
    pub(super) fn hold(&mut self, key: &LockKey, holder: Holder, origin: GrantOrigin) -> FencingToken {
        let token = self.next_token();
        let kind = EventKind::Granted { mode: holder.request.mode, waited_ms: holder.waited_ms };
        self.granted(key, token, kind, &holder, origin);
        self.insert_holder(key, token, holder);
        token
    }

    /// A new token, larger than all before.
    pub(super) fn next_token(&mut self) -> FencingToken {
        self.globals.tokens += 1;
        FencingToken::new(self.globals.epoch, self.globals.tokens)
    }

    /// As [`hold`](Self::hold), under a token that was drawn for it; the caller says what happened.
    pub(super) fn insert_holder(&mut self, key: &LockKey, token: FencingToken, holder: Holder) {
        let (claim, mode) = (holder.request.claim, holder.request.mode);
        self.deadlines.extend(holder.own_ends(key, token));
        self.index_hold(key, token, &holder, Change::Came);
        self.document_held(key, token, &holder);
        if let Some(lock) = self.locks.get_mut(key) {
            lock.permits_held += permits_of(mode);
            lock.holders.insert(token, Box::new(holder));
        }
        self.totals.holders += 1;
        // Its token is new: nothing else was ever kept under this key.
        self.dirty.born(RecordKey::Holder(key.clone(), token));
        self.index_claim(key, claim, ClaimState::Holding(token));
        self.check_holder(key, token);
        self.capacity_changes(key);
        self.recheck_passing(key, claim, mode);
        self.came_to(key);
    }

    /// The number under which the next request waits.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.globals.sequences += 1;
        self.globals.sequences
    }

    /// Puts it into the lock's queue under this number.
    pub(super) fn enqueue(&mut self, key: &LockKey, sequence: u64, waiter: Waiter) {
        let (claim, deadline) = (waiter.request.claim, waiter.deadline);
        let is_set = waiter.purpose == Purpose::Set;
        self.index_wait(key, sequence, &waiter, Change::Came);
        self.move_deadline(None, deadline, DeadlineOf::Wait(key.clone(), sequence));
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.insert(sequence, waiter);
        }
        if is_set {
            self.index_sets(key);
        }
        self.totals.waiters += 1;
        self.usage_of(&key.namespace).waiters += 1;
        self.dirty.born(RecordKey::Waiter(key.clone(), sequence));
        self.index_claim(key, claim, ClaimState::Waiting(sequence));
        self.event(Some(key.namespace.clone()), Subject::wait(key, claim), EventKind::Queued { sequence });
        self.came_to(key);
    }

    /// Notes with the claim's session or take where it stands now.
    pub(super) fn index_claim(&mut self, key: &LockKey, claim: Claim, state: ClaimState) {
        match claim {
            Claim::Request(request) => self.add_claim(request, key, state),
            Claim::Lease(take) => {
                if let Some(lock) = self.locks.get_mut(key) {
                    lock.leases.insert(take, state);
                }
            }
        }
    }

    /// Ends a hold. What a repeated request is told is `answer`, or that the hold ended for this reason.
    pub(super) fn end_hold(&mut self, key: &LockKey, token: FencingToken, reason: EndReason, answer: Option<Outcome>) {
        self.end_hold_as(key, token, EndCause { reason, answer, broken: None });
    }

    /// As [`end_hold`](Self::end_hold), also from outside.
    pub(super) fn end_hold_as(&mut self, key: &LockKey, token: FencingToken, ending: EndCause) {
        let EndCause { reason, answer, broken } = ending;
        let claim = self.locks.get(key).and_then(|lock| lock.holders.get(&token)).map(|holder| holder.request.claim);
        claim.into_iter().for_each(|claim| self.claim_changes(key, claim));
        let Some(lock) = self.locks.get_mut(key) else { return };
        let Some(holder) = lock.holders.remove(&token) else { return };
        lock.permits_held -= permits_of(holder.request.mode);
        self.index_hold(key, token, &holder, Change::Went);
        self.document_freed(key, token, &holder);
        if holder.is_recalled() {
            self.not_recalled(holder.request.claim.session(), token);
        }
        for end in holder.own_ends(key, token) {
            self.deadlines.remove(&end);
        }
        self.totals.holders -= 1;
        self.dirty.gone(RecordKey::Holder(key.clone(), token));
        self.check_queue(key, 0);
        let mode = holder.request.mode;
        let claim = holder.request.claim;
        let held_ms = self.globals.now.ms_since(holder.since);
        let is_broken = broken.is_some();
        let kind = match (reason, broken) {
            (_, Some((by, why))) => Some(EventKind::Broken { by, why, held_ms }),
            (EndReason::Released | EndReason::Cancelled, None) => Some(EventKind::Released { held_ms }),
            (
                EndReason::Expired | EndReason::Lost | EndReason::Broken | EndReason::Overtaken | EndReason::TimeOver,
                None,
            ) => Some(EventKind::Expired { reason, held_ms }),
            // Told by the event that names the new holder.
            (EndReason::HandedOver, None) => None,
        };
        if let Some(kind) = kind {
            self.happened(key, Some((claim, token)), kind, Some(mode));
        }
        let answer = answer.unwrap_or(Outcome::HoldEnded { reason });
        for later in holder.extras.iter().flat_map(|extras| extras.reentries.iter().chain(&extras.upgrade)) {
            self.finish_request(key, claim, later.number, later.fingerprint, answer.clone());
        }
        self.finish_claim(key, claim, holder.take_handle(), holder.request.fingerprint, answer);
        self.end_upgrade_of(key, token, reason);
        self.begin_delay(key, token, &holder, (reason, is_broken));
    }

    /// Takes a waiter out of its queue without a grant.
    pub(super) fn end_wait(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason) {
        let answer = match why {
            WaitEndReason::TimedOut => Outcome::TimedOut,
            WaitEndReason::Withdrawn
            | WaitEndReason::SessionEnded
            | WaitEndReason::HoldEnded
            | WaitEndReason::Impossible
            | WaitEndReason::Deadlock => Outcome::Withdrawn,
        };
        self.end_wait_as(key, sequence, why, answer);
    }

    /// As [`end_wait`](Self::leave), with what a repeated request is told.
    pub(super) fn end_wait_as(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason, answer: Outcome) {
        let waiter = self.locks.get(key).and_then(|lock| lock.queue.get(&sequence));
        if let Some(request) = waiter.and_then(request_of_set)
            && self.sessions.contains_key(&request.session)
        {
            for key in self.members_waiting(request, sequence) {
                self.end_wait_at(&key, sequence, why, answer.clone());
            }
            return;
        }
        self.end_wait_at(key, sequence, why, answer);
    }

    /// Takes a waiter out of one queue.
    pub(super) fn end_wait_at(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason, answer: Outcome) {
        let Some(waiter) = self.remove_waiter(key, sequence) else { return };
        self.check_queue(key, sequence);
        let subject = Subject::wait(key, waiter.request.claim);
        self.event(Some(key.namespace.clone()), subject, EventKind::WaitEnded { sequence, why });
        self.finish_claim(key, waiter.request.claim, waiter.take_handle(), waiter.request.fingerprint, answer);
    }

    pub(super) fn remove_waiter(&mut self, key: &LockKey, sequence: u64) -> Option<Waiter> {
        let claim = self.locks.get(key)?.queue.get(&sequence)?.request.claim;
        self.claim_changes(key, claim);
        let waiter = self.locks.get_mut(key)?.queue.remove(sequence)?;
        self.index_wait(key, sequence, &waiter, Change::Went);
        if waiter.purpose == Purpose::Set {
            self.index_sets(key);
        }
        self.move_deadline(waiter.deadline, None, DeadlineOf::Wait(key.clone(), sequence));
        self.totals.waiters -= 1;
        self.used_less(&key.namespace, |usage| usage.waiters -= 1);
        self.dirty.gone(RecordKey::Waiter(key.clone(), sequence));
        Some(waiter)
    }

    /// The claim neither waits nor holds any more: its request or take remembers the answer. A take has a handle.
    fn finish_claim(&mut self, key: &LockKey, claim: Claim, handle: Option<Handle>, fingerprint: u64, answer: Outcome) {
        match claim {
            Claim::Lease(take) => {
                let Some(handle) = handle else { return };
                if let Some(lock) = self.locks.get_mut(key) {
                    lock.leases.remove(&take);
                    lock.handles.remove(&handle);
                }
                self.finish_take(key, take, handle, Some(fingerprint), answer);
            }
            Claim::Request(request) => self.finish_request(key, claim, request.number, fingerprint, answer),
        }
    }

    /// A request of the claim's session neither waits for this lock nor holds it any more. The last one of a set is
    /// remembered for all.
    pub(super) fn finish_request(
        &mut self,
        key: &LockKey,
        claim: Claim,
        number: u64,
        fingerprint: u64,
        answer: Outcome,
    ) {
        let Some(session) = claim.session() else { return };
        if self.remove_claim(RequestId { session, number }, key) {
            return;
        }
        self.record_finished(session, number, Finished { fingerprint: Some(fingerprint), outcome: answer });
    }

    /// The lock under this name, made where it was free.
    pub(super) fn lock_or_new(&mut self, key: &LockKey, kind: Kind, limit: Option<u32>) -> &mut Lock {
        // Only a semaphore has a limit.
        let limit = limit.filter(|_| kind == Kind::Semaphore);
        if !self.locks.contains_key(key) {
            self.usage_of(&key.namespace).locks += 1;
            self.totals.locks += 1;
            if limit.is_some() {
                self.mark_dirty(RecordKey::Semaphore(key.clone()));
            }
        }
        self.locks.entry(key.clone()).or_insert_with(|| Box::new(Lock::new(kind, limit)))
    }

    /// When a session ends, for views of what it holds.
    pub(super) fn session_deadline(&self, session: Option<SessionId>) -> Option<crate::model::LogTime> {
        session.and_then(|id| self.sessions.get(&id)).map(|session| session.record.deadline)
    }
}
