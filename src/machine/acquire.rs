//! Acquire and cancel, for sessions.

use super::Machine;
use super::requests::of_acquire;
use super::state::{Finished, Holder, HolderExtras, Lease, Purpose, Standing, Waiter, kind_of};
use crate::faults::{self, Fault};
use crate::limits::STANDINGS_LOOKED_AT_MAX;
use crate::model::{
    Acquire, Claim, DurationField, EndReason, Fairness, FencingToken, Grant, HolderView, Kind, LeaveReason, LockKey,
    Mode, Outcome, Patience, Place, Principal, QuotaKind, Refusal, RequestId, SessionId,
};

impl Machine {
    pub(super) fn acquire(&mut self, principal: &Principal, acquire: &Acquire) -> Outcome {
        let id = acquire.request.session;
        if let Err(refusal) = self.live_session(id) {
            return Outcome::Refused(refusal);
        }
        self.answered_below(id, acquire.answered_below);
        let fingerprint = of_acquire(acquire);
        self.settle_request(acquire.request);
        if let Some(outcome) = self.live_request(acquire.request, fingerprint) {
            return outcome;
        }
        if let Some(outcome) = self.recall(acquire.request, fingerprint) {
            return outcome;
        }
        let Some(session) = self.sessions.get(&id) else {
            return Outcome::Refused(self.session_ended(id));
        };
        let key = LockKey { namespace: session.record.namespace.clone(), name: acquire.name.clone() };
        self.settle(&key);
        match self.admit(&key, acquire) {
            Err(refusal) => self.final_answer(acquire.request, fingerprint, Outcome::Refused(refusal)),
            Ok(Admission::Grant) => {
                let holder = self.new_holder(principal, acquire, fingerprint);
                let deadline = holder.lease.as_ref().map(|lease| lease.deadline);
                self.lock_in_use(&key, kind_of(acquire.mode), limit_of(acquire.mode));
                let token = self.hold(&key, holder, self.at_once(acquire.choices().fairness));
                Outcome::Granted(Grant { token, deadline, waited_ms: 0 })
            }
            Ok(Admission::Enter(token)) => self.enter(&key, token, acquire.request, fingerprint),
            Ok(Admission::Queue) => {
                let waiter = self.new_waiter(principal, acquire, fingerprint);
                self.lock_in_use(&key, kind_of(acquire.mode), limit_of(acquire.mode));
                let events = self.events.len();
                let sequence = self.enqueue(&key, waiter);
                let Some(circle) = self.closes_cycle(std::slice::from_ref(&key), sequence) else {
                    return Outcome::Queued(self.place(&key, sequence));
                };
                let refused = self.take_back(std::slice::from_ref(&key), sequence, events, circle);
                self.final_answer(acquire.request, fingerprint, refused)
            }
        }
    }

    /// The answer to a request that waits or holds: found by its own record, whatever the window remembers.
    pub(super) fn live_request(&self, request: RequestId, fingerprint: u64) -> Option<Outcome> {
        if faults::on(Fault::RetriesRunAgain) {
            return None;
        }
        let session = self.sessions.get(&request.session)?;
        let (key, standing) = session.first_standing(request.number)?;
        let lock = self.locks.get(key)?;
        let known = match standing {
            Standing::Waits(sequence) => lock.queue.get(&sequence)?.fingerprint,
            Standing::Holds(token) => {
                let mut entries = lock.holders.get(&token)?.entries();
                entries.find(|entered| entered.number == request.number)?.fingerprint
            }
        };
        let outcome = self.standing_outcome(request)?;
        let reused = Outcome::Refused(Refusal::RequestReused { number: request.number });
        Some(if known == fingerprint { outcome } else { reused })
    }

    /// Where a request stands that waits or holds.
    pub(super) fn standing_outcome(&self, request: RequestId) -> Option<Outcome> {
        let session = self.sessions.get(&request.session)?;
        let in_set = session.sets.contains_key(&request.number);
        Some(match session.first_standing(request.number)? {
            (key, Standing::Waits(sequence)) if in_set => Outcome::Queued(self.place_of_set(request, (key, sequence))),
            (_, Standing::Holds(_)) if in_set => self.grants_of_set(request),
            (key, Standing::Waits(sequence)) => Outcome::Queued(self.place(key, sequence)),
            (key, Standing::Holds(token)) => {
                Outcome::Granted(self.locks.get(key)?.holders.get(&token)?.grant(token, request.number))
            }
        })
    }

    /// Whether a new request may hold the lock now, has to queue, or is refused.
    fn admit(&self, key: &LockKey, acquire: &Acquire) -> Result<Admission, Refusal> {
        let id = acquire.request.session;
        let choices = acquire.choices();
        if let Some(refusal) =
            choices.lease_ms.and_then(|lease_ms| self.lease_out_of_bounds(DurationField::Lease, lease_ms))
        {
            return Err(refusal);
        }
        let entered = self.reentry(key, acquire)?;
        let live = self.sessions.get(&id).map_or(0, |session| session.locks() as u64);
        self.quotas.one_more(QuotaKind::LocksOfSession, live)?;
        match entered {
            Some(admission) => Ok(admission),
            None => self.admission(key, acquire.mode, acquire.patience, choices.fairness, Some(id)),
        }
    }

    /// Whether this acquire, executed now, would join the queue and do nothing else: its caller loses nothing if it is executed a
    /// moment later, together with what frees the lock. With `freed`: also if whoever holds the lock gives it back before, for
    /// others wait already. In doubt it would not: a session that stands at many locks is not searched for this one.
    #[must_use]
    pub fn would_queue(&self, acquire: &Acquire, freed: bool) -> bool {
        let id = acquire.request.session;
        let Some(session) = self.sessions.get(&id) else { return false };
        if acquire.patience == Patience::Try || STANDINGS_LOOKED_AT_MAX < session.locks() {
            return false;
        }
        let key = LockKey { namespace: session.record.namespace.clone(), name: acquire.name.clone() };
        let stands_there = session.standings().any(|(_, other, _)| *other == key);
        if stands_there || freed && self.locks.get(&key).is_none_or(|lock| lock.queue.is_empty()) {
            return false;
        }
        let fairness = acquire.choices().fairness;
        matches!(self.admission(&key, acquire.mode, acquire.patience, fairness, Some(id)), Ok(Admission::Queue))
    }

    /// What holds for sessions and takes alike: kind, limits, quotas, queue.
    pub(super) fn admission(
        &self,
        key: &LockKey,
        mode: Mode,
        patience: Patience,
        fairness: Fairness,
        session: Option<SessionId>,
    ) -> Result<Admission, Refusal> {
        if patience == Patience::Try {
            self.open_for_grants()?;
        }
        let Some(lock) = self.locks.get(key) else {
            self.free_name(key, mode)?;
            return Ok(if self.is_closed() { Admission::Queue } else { Admission::Grant });
        };
        if lock.kind != kind_of(mode) {
            return Err(Refusal::KindMismatch { lock: key.clone(), kind: lock.kind });
        }
        if let (Mode::Permits { count, limit: asked }, Some(limit)) = (mode, lock.limit) {
            within_limit(key, count, asked, limit)?;
        }
        if !self.is_closed() && self.may_enter(key, lock, mode, fairness, session) {
            return self
                .quotas
                .one_more(QuotaKind::HoldersOfLock, lock.holders.len() as u64)
                .map(|()| Admission::Grant);
        }
        if patience == Patience::Try {
            return Err(Refusal::Held { lock: key.clone(), holder: self.one_holder(key).map(Box::new) });
        }
        self.quotas.one_more(QuotaKind::WaitersOfLock, lock.queue.len() as u64)?;
        self.quotas.one_more(QuotaKind::Waiters, self.used(&key.namespace).waiters)?;
        Ok(Admission::Queue)
    }

    fn free_name(&self, key: &LockKey, mode: Mode) -> Result<(), Refusal> {
        if let Mode::Permits { count, limit } = mode {
            let limit = limit.ok_or_else(|| Refusal::LimitUnknown { lock: key.clone() })?;
            within_limit(key, count, Some(limit), limit)?;
        }
        self.quotas.one_more(QuotaKind::Locks, self.used(&key.namespace).locks)
    }

    fn new_holder(&self, principal: &Principal, acquire: &Acquire, fingerprint: u64) -> Holder {
        let lease_ms = acquire.choices().lease_ms;
        let lease =
            lease_ms.map(|lease_ms| Lease { handle: None, deadline: self.globals.now.after_ms(lease_ms), attempt: 0 });
        Holder {
            claim: Claim::Request(acquire.request),
            owner: acquire.owner.clone(),
            mode: acquire.mode,
            principal: principal.clone(),
            metadata: self.said(acquire.request, &acquire.metadata),
            since: self.globals.now,
            when: self.globals.wall,
            waited_ms: 0,
            fingerprint,
            lease,
            extras: acquire.extras.as_deref().and_then(HolderExtras::of),
        }
    }

    fn new_waiter(&self, principal: &Principal, acquire: &Acquire, fingerprint: u64) -> Waiter {
        Waiter {
            claim: Claim::Request(acquire.request),
            owner: acquire.owner.clone(),
            mode: acquire.mode,
            principal: principal.clone(),
            metadata: self.said(acquire.request, &acquire.metadata),
            since: self.globals.now,
            deadline: self.wait_deadline(acquire.patience),
            fingerprint,
            lease: None,
            extras: acquire.extras.clone(),
            purpose: Purpose::Hold,
        }
    }

    /// A waiter's place, and one who is in its way.
    pub(super) fn place(&self, key: &LockKey, sequence: u64) -> Place {
        let ahead = self.locks.get(key).map_or(0, |lock| match lock.queue.last_key_value() {
            // Whoever has just come stands behind everybody: a long queue is not counted.
            Some((last, _)) if *last == sequence => lock.queue.len() - 1,
            Some(_) | None => lock.queue.range(..sequence).count(),
        });
        Place { lock: key.name.clone(), place: ahead as u64 + 1, sequence, held_by: self.one_holder(key).map(Box::new) }
    }

    /// Releases a hold, or enters it once less where others of the owner's requests hold it too. An upgrade that was
    /// granted stays, and its caller is told: the shared hold that it believes in is gone.
    fn withdraw_hold(&mut self, key: &LockKey, token: FencingToken, number: u64) -> Outcome {
        let holder = self.locks.get(key).and_then(|lock| lock.holders.get(&token));
        let Some(holder) = holder else { return Outcome::Withdrawn };
        let upgrade = holder.extras.as_ref().and_then(|extras| extras.upgrade);
        if upgrade.is_some_and(|upgrade| upgrade.number == number) {
            return Outcome::Granted(holder.grant(token, number));
        }
        if 1 < holder.depth() {
            self.leave_hold(key, token, number, Outcome::Withdrawn);
        } else {
            self.end_hold(key, token, EndReason::Cancelled, Some(Outcome::Withdrawn));
        }
        Outcome::Withdrawn
    }

    /// The longest holder of a lock, as others may see it.
    pub(super) fn one_holder(&self, key: &LockKey) -> Option<HolderView> {
        let (token, _) = self.locks.get(key)?.holders.first_key_value()?;
        self.view_of(key, *token)
    }

    /// One holder of a lock, as others may see it.
    pub(super) fn view_of(&self, key: &LockKey, token: FencingToken) -> Option<HolderView> {
        let holder = self.locks.get(key)?.holders.get(&token)?;
        Some(holder.view(token, self.session_deadline(holder.claim.session())))
    }

    /// Withdraws a request: out of the queue, or released if it was granted. An unseen number is burnt, so that an
    /// acquire that arrives later is answered *withdrawn*.
    pub(super) fn cancel(&mut self, request: RequestId) -> Outcome {
        let id: SessionId = request.session;
        if let Err(refusal) = self.live_session(id) {
            return Outcome::Refused(refusal);
        }
        self.settle_request(request);
        let Some(session) = self.sessions.get(&id) else { return Outcome::Withdrawn };
        if session.sets.contains_key(&request.number) {
            return self.withdraw_set(request);
        }
        match session.live.get(&request.number).cloned() {
            Some((key, Standing::Waits(sequence))) => self.leave(&key, sequence, LeaveReason::Withdrawn),
            Some((key, Standing::Holds(token))) => return self.withdraw_hold(&key, token, request.number),
            None if session.finished.contains_key(&request.number) || faults::on(Fault::CancelForgotten) => {}
            None => {
                let burnt = Finished { fingerprint: None, outcome: Outcome::Withdrawn };
                self.remember(id, request.number, burnt);
            }
        }
        Outcome::Withdrawn
    }
}

/// What a new request may do.
pub(super) enum Admission {
    /// Hold the lock now.
    Grant,
    /// Enter its owner's hold once more.
    Enter(FencingToken),
    /// Stand at the end of the queue.
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

/// The limit that an acquire of a free name sets.
pub(super) fn limit_of(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Exclusive | Mode::Shared => None,
        Mode::Permits { limit, .. } => limit,
    }
}

/// The kinds agree with the modes; a constant so that a new kind is a compile error here.
const _: fn(Kind) = |kind| match kind {
    Kind::Lock | Kind::Semaphore => {}
};
