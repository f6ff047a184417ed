//! Grants and endings: which waiter is next, what a grant does, and how a hold or a wait ends. Every change of holders
//! uses this module.

use std::collections::BTreeSet;

use super::Machine;
use super::events::GrantOrigin;
use crate::faults::{self, Fault};
use crate::model::{
    Claim, EndReason, EventKind, FencingToken, Handle, LockKey, Outcome, Principal, Reason, RequestId, Subject,
    WaitEndReason,
};
use crate::state::{Finished, Holder, Purpose, Waiter};

impl Machine {
    /// Looks at every changed queue until nothing more can be granted: the waiter with the lowest sequence number
    /// first, over all locks. A waiter that has timed out is ended and never granted.
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
                self.end(due);
                self.check_queue(&key, sequence);
            } else {
                // A grant at another lock may have taken what this waiter needs. Then those behind it are next.
                let from = if self.grant_waiter(&key, sequence) { sequence } else { sequence + 1 };
                self.check_queue(&key, from);
            }
        }
    }

    /// Has this queue checked from this place on before the command ends. Waiters ahead of the place gain nothing by
    /// the change, so they are not checked again.
    pub(super) fn check_queue(&mut self, key: &LockKey, from: u64) {
        let known = self.queues_to_check.entry(key.clone()).or_insert(from);
        *known = from.min(*known);
    }

    /// The first waiter from this place on that can be granted or has timed out. Removes the lock if it has become
    /// free.
    fn next_of(&mut self, key: &LockKey, from: u64) -> Option<u64> {
        if self.state.lock(key)?.is_free() {
            self.state.remove_lock(key);
            return None;
        }
        self.next_in_queue(key, from)
    }

    /// Grants a waiter if it could hold the lock.
    fn grant_waiter(&mut self, key: &LockKey, sequence: u64) -> bool {
        let Some(lock) = self.state.lock(key) else { return false };
        let Some(waiter) = lock.queue.get(&sequence) else { return false };
        if !faults::on(Fault::LifoQueue) && !self.eligible(key, lock, sequence, waiter) {
            return false;
        }
        if !lock.admits(waiter.request.mode) && waiter.purpose == Purpose::Hold {
            return false;
        }
        match (waiter.purpose, waiter.set_request()) {
            (Purpose::Upgrade(token), _) => self.grant_upgrade(key, token),
            (Purpose::Set, Some(request)) => self.grant_set(request, sequence),
            (Purpose::Hold | Purpose::Set, _) => self.grant_to(key, sequence),
        }
        true
    }

    /// Makes the waiter with this sequence number a holder.
    fn grant_to(&mut self, key: &LockKey, sequence: u64) {
        let Some(waiter) = self.remove_waiter(key, sequence) else { return };
        let origin = GrantOrigin::from_queue(sequence, &waiter);
        let holder = Holder::from_waiter(waiter, &self.state.globals);
        self.hold(key, holder, origin);
    }

    /// Grants a waiting set, lock by lock in the order of the names.
    fn grant_set(&mut self, request: RequestId, sequence: u64) {
        for key in self.state.members_waiting(request, sequence) {
            self.grant_to(&key, sequence);
            self.check_queue(&key, sequence);
        }
    }

    /// Adds a holder to the lock, with a new token larger than all before.
    pub(super) fn hold(&mut self, key: &LockKey, holder: Holder, origin: GrantOrigin) -> FencingToken {
        let token = self.next_token();
        let kind = EventKind::Granted { mode: holder.request.mode, waited_ms: holder.waited_ms };
        self.granted(key, token, kind, &holder, origin);
        self.insert_holder(key, token, holder);
        token
    }

    /// A new token, larger than all before.
    pub(super) fn next_token(&mut self) -> FencingToken {
        self.state.globals.tokens += 1;
        FencingToken::new(self.state.globals.epoch, self.state.globals.tokens)
    }

    /// Like [`hold`](Self::hold), but with the given token and without an event, which the caller emits.
    pub(super) fn insert_holder(&mut self, key: &LockKey, token: FencingToken, holder: Holder) {
        let (claim, mode) = (holder.request.claim, holder.request.mode);
        // A name that is held has no free document any more.
        self.state.remove_document(key);
        self.state.insert_holder(key, token, Box::new(holder));
        self.check_holder(key, token);
        self.capacity_changes(key);
        self.recheck_passing(key, claim, mode);
        self.came_to(key);
    }

    /// The sequence number of the next request that waits.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.state.globals.sequences += 1;
        self.state.globals.sequences
    }

    /// Adds the waiter to the lock's queue under this number.
    pub(super) fn enqueue(&mut self, key: &LockKey, sequence: u64, waiter: Waiter) {
        let claim = waiter.request.claim;
        self.state.insert_waiter(key, sequence, waiter);
        self.event(Some(key.namespace.clone()), Subject::wait(key, claim), EventKind::Queued { sequence });
        self.came_to(key);
    }

    /// Ends a hold. A repetition of its request gets `answer`; for `None`, the answer that the hold ended for this
    /// reason.
    pub(super) fn end_hold(&mut self, key: &LockKey, token: FencingToken, reason: EndReason, answer: Option<Outcome>) {
        self.end_hold_as(key, token, reason, answer, None);
    }

    /// Like [`end_hold`](Self::end_hold). If the hold was broken, `broken` is the caller that broke it, and its reason.
    pub(super) fn end_hold_as(
        &mut self,
        key: &LockKey,
        token: FencingToken,
        reason: EndReason,
        answer: Option<Outcome>,
        broken: Option<(Principal, Reason)>,
    ) {
        let Some(holder) = self.state.remove_holder(key, token) else { return };
        let (claim, mode) = (holder.request.claim, holder.request.mode);
        self.claim_changes(key, claim);
        self.document_freed(key, token, &holder);
        self.check_queue(key, 0);
        let held_ms = self.state.globals.now.ms_since(holder.since);
        let is_broken = broken.is_some();
        let kind = match (reason, broken) {
            (_, Some((by, why))) => Some(EventKind::Broken { by, why, held_ms }),
            (EndReason::Released | EndReason::Cancelled, None) => Some(EventKind::Released { held_ms }),
            (
                EndReason::Expired | EndReason::Lost | EndReason::Broken | EndReason::Overtaken | EndReason::TimeOver,
                None,
            ) => Some(EventKind::Expired { reason, held_ms }),
            // The event of the new holder reports this end.
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
        if !is_broken {
            self.begin_delay(key, token, &holder, reason);
        }
    }

    /// Removes a waiter from its queue without a grant. A repetition of its request gets the answer *withdrawn*.
    pub(super) fn end_wait(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason) {
        self.end_wait_as(key, sequence, why, Outcome::Withdrawn);
    }

    /// Like [`end_wait`](Self::end_wait), but with this answer to a repeated request. A set leaves all its queues.
    pub(super) fn end_wait_as(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason, answer: Outcome) {
        let Some(waiter) = self.state.waiter(key, sequence) else { return };
        for key in self.waits_at(key, waiter.request.claim, sequence) {
            self.end_wait_at(&key, sequence, why, answer.clone());
        }
    }

    /// Removes a waiter from one queue.
    fn end_wait_at(&mut self, key: &LockKey, sequence: u64, why: WaitEndReason, answer: Outcome) {
        let Some(waiter) = self.remove_waiter(key, sequence) else { return };
        self.check_queue(key, sequence);
        let subject = Subject::wait(key, waiter.request.claim);
        self.event(Some(key.namespace.clone()), subject, EventKind::WaitEnded { sequence, why });
        self.finish_claim(key, waiter.request.claim, waiter.take_handle(), waiter.request.fingerprint, answer);
    }

    pub(super) fn remove_waiter(&mut self, key: &LockKey, sequence: u64) -> Option<Waiter> {
        let claim = self.state.waiter(key, sequence)?.request.claim;
        self.claim_changes(key, claim);
        self.state.remove_waiter(key, sequence)
    }

    /// Records the answer of a claim that neither waits nor holds any more, in its request or its take. A take has a
    /// handle.
    fn finish_claim(&mut self, key: &LockKey, claim: Claim, handle: Option<Handle>, fingerprint: u64, answer: Outcome) {
        match claim {
            Claim::Lease(take) => {
                let Some(handle) = handle else { return };
                if let Some(lock) = self.state.locks.get_mut(key) {
                    lock.leases.remove(&take);
                    lock.handles.remove(&handle);
                }
                self.finish_take(key, take, handle, Some(fingerprint), answer);
            }
            Claim::Request(request) => self.finish_request(key, claim, request.number, fingerprint, answer),
        }
    }

    /// Records the answer of a session's request that neither waits for this lock nor holds it any more. The answer of
    /// the last lock of a set is remembered for the whole set.
    pub(super) fn finish_request(
        &mut self,
        key: &LockKey,
        claim: Claim,
        number: u64,
        fingerprint: u64,
        answer: Outcome,
    ) {
        let Some(session) = claim.session() else { return };
        if self.state.remove_claim(RequestId { session, number }, key) {
            return;
        }
        self.record_finished(session, number, Finished { fingerprint: Some(fingerprint), outcome: answer });
    }
}
