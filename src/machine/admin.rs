//! Actions on a lock by other callers than its holder: break, ask, hand over, and the limit of a semaphore. Each action
//! on a hold names it by its public token.

use std::sync::Arc;

use super::Machine;
use super::events::GrantOrigin;
use crate::limits;
use crate::model::{
    BreakReport, Claim, EndReason, EventKind, Fairness, FencingToken, HolderView, Kind, LockKey, LogTime, Manage,
    Managing, Mode, Outcome, Principal, QuotaKind, Reason, Refusal, RequestId, SessionId, Subject, WaitEndReason,
    WaiterView,
};
use crate::state::{ClaimState, Holder, Lock, Purpose, RecordKey, Request, Waiter, looked_at};

impl Machine {
    pub(super) fn manage(&mut self, principal: &Principal, manage: &Manage) -> Result<Outcome, Refusal> {
        let key = &manage.lock;
        self.expire_due_at(key);
        match &manage.what {
            Managing::SetLimit { limit } => self.set_limit(key, *limit),
            Managing::RemoveLimit => self.remove_limit(key),
            Managing::BreakHold { token, why } => self.break_hold(principal, key, *token, why),
            Managing::Ask { token, why } => self.ask_holder(principal, key, *token, why),
            Managing::HandOver { token, to } => self.hand_over(principal, key, *token, *to),
        }
    }

    fn break_hold(
        &mut self,
        by: &Principal,
        key: &LockKey,
        token: FencingToken,
        why: &Reason,
    ) -> Result<Outcome, Refusal> {
        let report = BreakReport { done: true, ..self.would_break(key, token)? };
        self.end_hold_as(key, token, EndReason::Broken, None, Some((by.clone(), why.clone())));
        self.end_delay(key, token);
        Ok(Outcome::Broken(Box::new(report)))
    }

    /// The report that a break would return now.
    pub(super) fn would_break(&self, key: &LockKey, token: FencingToken) -> Result<BreakReport, Refusal> {
        let (holder, last_seen) = self.held_or_closed(key, token).ok_or_else(|| self.not_proven(key))?;
        Ok(BreakReport { done: false, holder, last_seen, next: self.next_after(key, token) })
    }

    /// The first waiter, if a break of this hold lets it hold the lock. An upgrade of the broken hold ends with it, so
    /// the waiter behind that one is the first. After a restore no waiter is granted until the closed time is over.
    fn next_after(&self, key: &LockKey, broken: FencingToken) -> Option<WaiterView> {
        if self.is_closed() {
            return None;
        }
        let lock = self.state.lock(key)?;
        let mut waiters = lock.queue.iter().filter(|(_, waiter)| waiter.purpose != Purpose::Upgrade(broken));
        let (sequence, waiter) = waiters.next()?;
        let admits = match (waiter.purpose, waiter.request.mode) {
            (Purpose::Upgrade(own), _) => {
                lock.holders.keys().chain(lock.delays.keys()).all(|token| [broken, own].contains(token))
            }
            (Purpose::Hold | Purpose::Set, Mode::Permits(_)) => {
                // Unlike a hand-over, a break also opens the permits that the hold returned before.
                let closed = lock.delays.get(&broken).map_or(0, |delayed| delayed.holder.request.mode.permits());
                let held = lock.holders.get(&broken).map_or(0, |holder| holder.request.mode.permits());
                let used = lock.permits_held - held + (lock.permits_reserved - closed);
                used + waiter.request.mode.permits() <= u64::from(lock.limit.unwrap_or_default())
            }
            (Purpose::Hold | Purpose::Set, mode) => lock.admits_instead(broken, mode),
        };
        let has_the_rest = |request: RequestId| {
            let others = self.state.members_waiting(request, *sequence).into_iter().filter(|other| other != key);
            let mut locks = others.filter_map(|other| Some((self.state.lock(&other)?, other)));
            locks.all(|(lock, other)| self.member_fits(&other, lock, *sequence, request.session))
        };
        let gets = admits && waiter.set_request().is_none_or(has_the_rest);
        gets.then(|| waiter.view(1, *sequence))
    }

    /// The hold with this token, or the ended hold that still keeps the name closed, and the time of its session's last
    /// renewal.
    fn held_or_closed(&self, key: &LockKey, token: FencingToken) -> Option<(HolderView, Option<LogTime>)> {
        let closed = || Some(self.state.delayed(key, token)?.view(token));
        let view = self.view_of(key, token).or_else(closed)?;
        let session = view.session.and_then(|id| self.state.session(id));
        Some((view, session.map(|session| session.record.renewed)))
    }

    fn ask_holder(
        &mut self,
        by: &Principal,
        key: &LockKey,
        token: FencingToken,
        why: &Reason,
    ) -> Result<Outcome, Refusal> {
        let claim = self.state.holder(key, token).ok_or_else(|| self.not_proven(key))?.request.claim;
        let kind = EventKind::RevokeRequested { by: by.clone(), why: why.clone() };
        self.event(Some(key.namespace.clone()), Subject::hold(key, claim, token), kind);
        Ok(Outcome::Done)
    }

    fn hand_over(
        &mut self,
        by: &Principal,
        key: &LockKey,
        from: FencingToken,
        to: SessionId,
    ) -> Result<Outcome, Refusal> {
        self.open_for_grants()?;
        self.live_session(to)?;
        let next = self.successor(key, from, to)?;
        let (claim, mode) = (next.request.claim, next.request.mode);
        let holder = self.state.holder(key, from);
        let was = holder.map_or(claim, |holder| holder.request.claim);
        let given_up = holder.and_then(|holder| self.given_up(holder, mode));
        if given_up.is_some() {
            let kept = self.state.lock(key).map_or(0, Lock::kept);
            self.quotas.one_more(QuotaKind::HoldersOfLock, kept)?;
        }
        self.end_hold(key, from, EndReason::HandedOver, None);
        if let Some(given_up) = given_up {
            self.begin_delay(key, from, &given_up, EndReason::Released);
        }
        // What the hold of a lock gave up stays closed until the same time. It is not closed to the successor, which
        // keeps it under its own token. An exclusive successor holds all of it.
        let kept = if let Mode::Permits(_) = mode { None } else { self.state.remove_delay(key, from) };
        let waiter =
            self.waits_alone(key, to).and_then(|sequence| Some((sequence, self.remove_waiter(key, sequence)?)));
        let origin = match &waiter {
            Some((sequence, waiter)) => GrantOrigin::from_queue(*sequence, waiter),
            None => self.at_once(Fairness::Fair),
        };
        let token = self.next_token();
        self.granted(key, token, EventKind::HandedOver { was, from, mode, by: by.clone() }, &next, origin);
        self.handed_over.push(waiter.is_some().then_some(next.waited_ms));
        self.insert_holder(key, token, next);
        if let Some(kept) = kept.filter(|_| mode == Mode::Shared) {
            self.state.insert_delay(key, token, kept);
        }
        Ok(claim.request().map_or(Outcome::Done, |to| Outcome::HandedOver { token, to }))
    }

    /// The successor's hold: made from its waiting request if it has one, otherwise a copy of the current hold.
    fn successor(&self, key: &LockKey, from: FencingToken, to: SessionId) -> Result<Holder, Refusal> {
        let lock = self.state.lock(key).ok_or_else(|| Refusal::NotHeld { lock: key.clone() })?;
        let old = lock.holders.get(&from).ok_or_else(|| self.not_proven(key))?;
        let not_accepted = || Refusal::NotAccepted { lock: key.clone(), session: to };
        let session = self.state.session(to).filter(|session| session.record.namespace == key.namespace);
        let session = session.ok_or_else(not_accepted)?;
        if let Some(waiter) = self.waits_alone(key, to).and_then(|sequence| lock.queue.get(&sequence)) {
            if !lock.admits_instead(from, waiter.request.mode) {
                return Err(self.held_by_another(key, waiter.request.mode, Some(from)));
            }
            return Ok(successor_of(old, Holder::from_waiter(waiter.clone(), &self.state.globals)));
        }
        if !session.record.accepts_hand_over {
            return Err(not_accepted());
        }
        self.quotas.one_more(QuotaKind::LocksOfSession, session.locks as u64)?;
        let number = limits::OWN_REQUESTS_MIN | (self.state.globals.tokens + 1);
        let request = Request {
            claim: Claim::Request(RequestId { session: to, number }),
            owner: None,
            mode: old.request.mode,
            principal: session.record.principal.clone(),
            metadata: Arc::clone(&session.record.metadata),
            fingerprint: 0,
            extras: None,
        };
        Ok(successor_of(old, Holder::new(request, &self.state.globals)))
    }

    /// The first wait of this session for this lock alone, not as part of a set. Searches the session's claims or the
    /// queue, whichever is shorter.
    fn waits_alone(&self, key: &LockKey, session: SessionId) -> Option<u64> {
        let queue = &self.state.lock(key)?.queue;
        let alone =
            |waiter: &Waiter| waiter.purpose == Purpose::Hold && waiter.request.claim.session() == Some(session);
        let session = self.state.session(session)?;
        if queue.len() < session.locks {
            let mut waiters = queue.iter().inspect(|_| looked_at());
            return waiters.find(|(_, waiter)| alone(waiter)).map(|(sequence, _)| *sequence);
        }
        let standings = session.claims().inspect(|_| looked_at()).filter(|(_, other, _)| *other == key);
        let sequences = standings.filter_map(|(_, _, standing)| match standing {
            ClaimState::Waiting(sequence) => Some(sequence),
            ClaimState::Holding(_) => None,
        });
        sequences.filter(|sequence| queue.get(sequence).is_some_and(alone)).min()
    }

    /// Sets the limit of a semaphore. Refuses waiters that want more permits than that. Ends no hold.
    pub(super) fn set_limit(&mut self, key: &LockKey, limit: u32) -> Result<Outcome, Refusal> {
        let old = match self.state.lock(key) {
            Some(lock) if lock.kind == Kind::Lock => {
                return Err(Refusal::KindMismatch { lock: key.clone(), kind: Kind::Lock });
            }
            Some(lock) if lock.limit == Some(limit) && lock.limit_kept => return Ok(Outcome::Done),
            Some(lock) => lock.limit,
            None => {
                self.quotas.one_more(QuotaKind::Locks, self.state.used(&key.namespace).locks)?;
                None
            }
        };
        let lock = self.state.lock_or_new(key, Kind::Semaphore, Some(limit));
        lock.limit = Some(limit);
        lock.limit_kept = true;
        self.limit_changed(key, Some(limit));
        self.capacity_changes(key);
        self.refuse_the_impossible(key, limit);
        self.holders_changed(key);
        if old.is_some_and(|old| limit < old) {
            self.check_waiters(key);
        }
        Ok(Outcome::Done)
    }

    /// Removes the limit together with the semaphore's last user.
    pub(super) fn remove_limit(&mut self, key: &LockKey) -> Result<Outcome, Refusal> {
        let Some(lock) = self.state.locks.get_mut(key) else { return Ok(Outcome::Done) };
        if lock.kind == Kind::Lock {
            return Err(Refusal::KindMismatch { lock: key.clone(), kind: Kind::Lock });
        }
        if lock.limit_kept {
            lock.limit_kept = false;
            self.limit_changed(key, None);
        }
        Ok(Outcome::Done)
    }

    fn limit_changed(&mut self, key: &LockKey, limit: Option<u32>) {
        self.state.mark(RecordKey::Semaphore(key.clone()));
        self.check_queue(key, 0);
        self.happened(key, None, EventKind::LimitChanged { limit }, None);
    }

    /// Refuses waiters that want more permits than the limit. They could never be granted, and would block all waiters
    /// behind them permanently.
    fn refuse_the_impossible(&mut self, key: &LockKey, limit: u32) {
        let Some(lock) = self.state.lock(key) else { return };
        let beyond = lock.queue.iter().filter_map(|(sequence, waiter)| match waiter.request.mode {
            Mode::Permits(asked) if limit < asked => Some((*sequence, asked)),
            Mode::Permits(_) | Mode::Exclusive | Mode::Shared => None,
        });
        for (sequence, asked) in beyond.collect::<Vec<_>>() {
            let refusal = Refusal::LimitExceeded { lock: key.clone(), limit, asked };
            self.end_wait_as(key, sequence, WaitEndReason::Impossible, Outcome::Refused(refusal));
        }
    }
}

/// Completes the hold of the successor: it keeps the lock closed as long as the old hold would have, or longer if its
/// own request chose so.
fn successor_of(old: &Holder, mut next: Holder) -> Holder {
    let closed_until = old.closed_until().max(next.closed_until());
    if closed_until.is_some() {
        next.extras_mut().closed_until = closed_until;
    }
    next
}
