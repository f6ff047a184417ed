//! The machine's invariants, as one function. Tests and simulations run it after every entry.

use super::Machine;
use super::deadlock::ToCheck;
use super::lock::Lock;
use super::state::{ClaimState, Holder, permits_of};
use crate::model::{Claim, LockKey, Mode, RequestId, SessionId};

impl Machine {
    /// Says which invariant is broken, if any.
    ///
    /// - One exclusive holder, or shared holders, or permits that are counted. They may be above a limit that was lowered
    ///   from outside, which evicts no holder.
    /// - No waiter waits for what is free: the head of no queue could be granted, nor any waiter that barges; except where
    ///   nothing is granted after a restore.
    /// - Tokens and sequence numbers in use are not above their counters.
    /// - A cached hold is one of a session, exclusive, unnamed and without an end of its own; it is recalled where a request
    ///   waits behind it.
    /// - A claim stands where its session or take says, and nowhere else; no number is live and finished.
    /// - A document is a take of its `ts` without an end of its own; what is held has no free document.
    /// - What a node announced stands under its own id.
    /// - Nothing that ended is still there, unless the sweep stopped at its bound.
    /// - History is within its bounds, and counted as it is.
    /// - Everything derived equals what the records say.
    pub fn check(&self) -> Result<(), String> {
        for (key, lock) in &self.locks {
            self.check_lock(key, lock).map_err(|broken| format!("{key:?}: {broken}"))?;
        }
        self.check_claims()?;
        self.check_documents()?;
        if let Some((id, told)) = self.nodes.iter().find(|(id, told)| **id != told.node) {
            return Err(format!("node {} is filed as node {id}", told.node));
        }
        self.check_derived()?;
        self.history.check()?;
        if self.is_due() && !self.sweep_incomplete {
            return Err(format!("something was due at {:?}, and it is {:?}", self.next_deadline(), self.now()));
        }
        Ok(())
    }

    fn check_lock(&self, key: &LockKey, lock: &Lock) -> Result<(), String> {
        if lock.is_free() {
            return Err("a free lock has a record".into());
        }
        let exclusive = lock.holders.values().filter(|holder| holder.request.mode == Mode::Exclusive).count();
        if 0 < exclusive && 1 < lock.holders.len() {
            return Err(format!("{exclusive} exclusive holders among {}", lock.holders.len()));
        }
        let permits: u64 = lock.holders.values().map(|holder| permits_of(holder.request.mode)).sum();
        let reserved: u64 = lock.delays.values().map(|delayed| permits_of(delayed.holder.request.mode)).sum();
        if reserved != lock.permits_reserved {
            return Err(format!("{reserved} permits reserved, {} counted", lock.permits_reserved));
        }
        if permits != lock.permits_held {
            return Err(format!("{permits} permits held, {} counted", lock.permits_held));
        }
        if let Some(sequence) = self.next_in_queue(key, 0).filter(|_| !self.is_yet_to_open(key))
            && self.waiter_due(key, sequence).is_none()
        {
            return Err(format!("waiter {sequence} could hold the lock"));
        }
        let awaited = !lock.queue.is_empty();
        if let Some(wrong) = lock.holders.values().find_map(|holder| holder.wrong_about_cached(awaited)) {
            return Err(wrong.into());
        }
        if !lock.queue.is_indexed() {
            return Err("the index of its waiters is wrong".into());
        }
        let newest = lock.holders.last_key_value().map_or(0, |(token, _)| token.counter());
        let last = lock.queue.keys().last().copied().unwrap_or_default();
        if self.globals.tokens < newest || self.globals.sequences < last {
            return Err(format!("token {newest} or sequence {last} is above its counter"));
        }
        Ok(())
    }

    fn check_claims(&self) -> Result<(), String> {
        let mut standings = 0;
        for (id, session) in &self.sessions {
            for (number, key, standing) in session.claims() {
                standings += 1;
                let found = self.claim_at(key, standing);
                let stands = self.is_claim_at(key, standing, *id, number);
                if !stands || session.finished.contains_key(&number) {
                    return Err(format!("request {id}#{number} is said to stand at {key:?} {standing:?}: {found:?}"));
                }
            }
        }
        for (key, lock) in &self.locks {
            for (id, standing) in lock.leases.iter() {
                standings += 1;
                let listed = lock.handle_at(*standing).and_then(|handle| lock.handles.get(&handle));
                if self.claim_at(key, *standing) != Some(Claim::Lease(*id)) || listed != Some(id) {
                    return Err(format!("take {id:?} is said to stand at {key:?} {standing:?}"));
                }
                if self.finished_leases.contains_key(&(key.clone(), *id)) {
                    return Err(format!("take {id:?} of {key:?} is live and finished"));
                }
            }
            if lock.handles.len() != lock.leases.len() {
                return Err(format!("{} takes of {key:?} have {} handles", lock.leases.len(), lock.handles.len()));
            }
        }
        let held = |lock: &Lock| lock.holders.values().map(|holder| holder.entries().count().max(1)).sum::<usize>();
        let stand: usize = self.locks.values().map(|lock| held(lock) + lock.queue.len()).sum();
        if stand != standings {
            return Err(format!("{stand} hold or wait, {standings} are known to sessions and takes"));
        }
        Ok(())
    }

    /// Whether this request of the session waits or holds there, as the first or by reentry.
    fn is_claim_at(&self, key: &LockKey, standing: ClaimState, session: SessionId, number: u64) -> bool {
        let Some(lock) = self.locks.get(key) else { return false };
        match standing {
            ClaimState::Waiting(_) => {
                self.claim_at(key, standing) == Some(Claim::Request(RequestId { session, number }))
            }
            ClaimState::Holding(token) => lock.holders.get(&token).is_some_and(|holder| {
                holder.request.claim.session() == Some(session)
                    && holder.entries().any(|entered| entered.number == number)
            }),
        }
    }

    fn claim_at(&self, key: &LockKey, standing: ClaimState) -> Option<Claim> {
        let lock = self.locks.get(key)?;
        match standing {
            ClaimState::Waiting(sequence) => lock.queue.get(&sequence).map(|waiter| waiter.request.claim),
            ClaimState::Holding(token) => lock.holders.get(&token).map(|holder| holder.request.claim),
        }
    }

    fn check_documents(&self) -> Result<(), String> {
        for (key, lock) in &self.locks {
            let wrong = |holder: &Holder| {
                holder
                    .document()
                    .is_some_and(|mark| holder.request.claim != Claim::Lease(mark.ts.take()) || holder.lease.is_some())
            };
            if lock.holders.values().any(|holder| wrong(holder)) {
                return Err(format!("{key:?}: a document that is another claim's, or has an end of its own"));
            }
            if !lock.holders.is_empty() && self.documents.free.contains_key(key) {
                return Err(format!("{key:?} is held, and has a free document"));
            }
        }
        Ok(())
    }

    fn check_derived(&self) -> Result<(), String> {
        if self.deadlines != self.derived_deadlines() {
            return Err("the index of deadlines is wrong".into());
        }
        let derived = self.derived_usage();
        if self.usage != derived {
            return Err(format!("quotas are counted as {:?}, not {derived:?}", self.usage));
        }
        if self.handles != self.derived_handles() {
            return Err("the index of handles is wrong".into());
        }
        if self.totals != self.derived_totals() {
            return Err(format!("totals are counted as {:?}, not {:?}", self.totals, self.derived_totals()));
        }
        if self.owners != self.derived_owners() {
            return Err("the index of owners is wrong".into());
        }
        if self.set_locks != self.derived_set_locks() {
            return Err("the index of waiting sets is wrong".into());
        }
        if self.sessions_with_several != self.derived_sessions_with_several() {
            return Err("the index of sessions with several requests is wrong".into());
        }
        if self.documents != self.derived_documents() {
            return Err("the index of documents is wrong".into());
        }
        if self.recalled != self.derived_recalled() {
            return Err("the index of recalled holds is wrong".into());
        }
        if self.to_check != ToCheck::default()
            || !self.to_recall.is_empty()
            || !self.queues_to_check.is_empty()
            || !self.events.is_empty()
        {
            return Err("an entry was left half applied".into());
        }
        Ok(())
    }
}
