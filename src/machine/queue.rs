//! Who is next in a queue: first come, first served over all modes, except among those that barge, and for those who hold
//! what a waiting set lacks.
//!
//! A waiter is eligible when the holders admit it and nothing ahead of it conflicts with it that it may not pass; a set
//! when that is so for each of its locks. A session that holds a name which a waiting set still lacks passes, on any other
//! name, that set and everything that waits, transitively, behind it: otherwise both would wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::lock::Lock;
use super::state::{Holder, Purpose, Standing, Waiter, permits_of};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{Claim, Fairness, LockKey, Mode, QuotaKind, RequestId, SessionId};

impl Machine {
    /// The first waiter that could be granted now, or that has run out; `None` where everybody has to wait on. Who has run
    /// out while nobody could be granted anything is left to the sweep of deadlines.
    pub(super) fn next_in_queue(&self, key: &LockKey) -> Option<u64> {
        let lock = self.locks.get(key)?;
        if self.is_closed() {
            return None;
        }
        if lock.admits_nobody() {
            return None;
        }
        if faults::on(Fault::LifoQueue) {
            return lock.queue.last_key_value().map(|(sequence, _)| *sequence);
        }
        let mut stay = Stay::default();
        for (looked_at, (sequence, waiter)) in lock.queue.iter().enumerate() {
            let due = self.waiter_due(key, *sequence).is_some();
            if due || (!stay.block(self, key, waiter) && self.eligible(key, lock, *sequence, waiter)) {
                return Some(*sequence);
            }
            stay.note(waiter);
            let passed_by_some = waiter.barges() && looked_at + 1 < limits::BARGING_LOOKED_AT_MAX;
            if self.sets_waiting == 0 && !passed_by_some {
                return None;
            }
        }
        None
    }

    /// Whether one more could hold the lock: the holders admit it, and there are not too many of them.
    pub(super) fn has_room(&self, lock: &Lock, mode: Mode) -> bool {
        let holders = lock.holders.len() as u64;
        lock.admits(mode) && self.quotas.one_more(QuotaKind::HoldersOfLock, holders).is_ok()
    }

    /// Whether this waiter could be granted now, for all its locks.
    pub(super) fn eligible(&self, key: &LockKey, lock: &Lock, sequence: u64, waiter: &Waiter) -> bool {
        match (waiter.purpose, waiter.claim) {
            (Purpose::Upgrade(token), _) => lock.admits_upgrade(token),
            (Purpose::Set, Claim::Request(request)) => {
                let session = request.session;
                let members = self.members_waiting(request, sequence);
                let has = |key: &LockKey| {
                    self.locks.get(key).is_some_and(|lock| self.could_have(key, lock, sequence, session))
                };
                if faults::on(Fault::SetGrantedInPart) {
                    return members.iter().any(has);
                }
                members.iter().all(has)
            }
            (Purpose::Hold | Purpose::Set, _) => {
                let ahead = Ahead { before: sequence, mode: waiter.mode, barges: waiter.barges() };
                self.has_room(lock, waiter.mode) && self.clear_ahead(key, lock, ahead, waiter.claim.session())
            }
        }
    }

    /// Whether a set could have this one of its locks.
    pub(super) fn could_have(&self, key: &LockKey, lock: &Lock, sequence: u64, session: SessionId) -> bool {
        let Some(mode) = lock.queue.get(&sequence).map(|waiter| waiter.mode) else { return false };
        let ahead = Ahead { before: sequence, mode, barges: false };
        self.has_room(lock, mode) && self.clear_ahead(key, lock, ahead, Some(session))
    }

    /// Whether a newcomer may hold the lock at once: the holders admit it, and it passes nobody whom it may not pass.
    pub(super) fn may_enter(
        &self,
        key: &LockKey,
        lock: &Lock,
        mode: Mode,
        fairness: Fairness,
        session: Option<SessionId>,
    ) -> bool {
        let barges = fairness == Fairness::Barging;
        if lock.queue.is_empty() || (barges && lock.queue.len() == lock.barging) {
            return lock.admits(mode);
        }
        let ahead = Ahead { before: u64::MAX, mode, barges };
        self.sets_waiting != 0 && lock.admits(mode) && self.clear_ahead(key, lock, ahead, session)
    }

    /// Whether nothing ahead is in the way.
    fn clear_ahead(&self, key: &LockKey, lock: &Lock, ahead: Ahead, session: Option<SessionId>) -> bool {
        if faults::on(Fault::ReaderPassesWriter) && ahead.mode == Mode::Shared {
            return true;
        }
        let mut passable: Option<BTreeMap<u64, Claim>> = None;
        lock.queue.range(..ahead.before).all(|(sequence, waiter)| {
            // One that barges passes no fair one, not even where both could hold the lock.
            let fair = ahead.barges && waiter.purpose == Purpose::Hold;
            if (ahead.barges && waiter.barges()) || (!fair && !conflict(waiter.mode, ahead.mode)) {
                return true;
            }
            let Some(session) = session.filter(|_| self.sets_waiting != 0) else { return false };
            passable.get_or_insert_with(|| self.passable(session, key)).contains_key(sequence)
        })
    }

    /// The other locks that a session holds, and its hold there.
    fn held_elsewhere<'a>(
        &'a self,
        session: SessionId,
        at: &'a LockKey,
    ) -> impl Iterator<Item = (&'a LockKey, &'a Lock, &'a Holder)> {
        let standings = self.sessions.get(&session).into_iter().flat_map(|session| session.standings());
        standings.filter(move |(_, key, _)| *key != at).filter_map(|(_, key, standing)| {
            let Standing::Holds(token) = standing else { return None };
            let lock: &Lock = self.locks.get(key)?;
            let holder: &Holder = lock.holders.get(&token)?;
            Some((key, lock, holder))
        })
    }

    /// Whether a session holds something elsewhere that a set waits for: nobody else passes a waiter that is in its way.
    fn may_pass(&self, session: SessionId, at: &LockKey) -> bool {
        self.held_elsewhere(session, at).any(|(_, lock, _)| 0 < lock.sets)
    }

    /// Whom a session passes at this lock: sets that lack what it holds elsewhere, and everybody behind them.
    pub(super) fn passable(&self, session: SessionId, at: &LockKey) -> BTreeMap<u64, Claim> {
        let mut sets = Vec::new();
        for (key, lock, holder) in self.held_elsewhere(session, at) {
            for (sequence, waiter) in &lock.queue {
                let lacks = conflict(holder.mode, waiter.mode) && !lock.admits(waiter.mode);
                if waiter.purpose == Purpose::Set && lacks {
                    sets.push((*sequence, key.clone(), waiter.claim));
                }
            }
        }
        self.and_behind(sets)
    }

    /// These waiters, by number, one of their locks and claim, and everybody who waits, transitively, behind
    /// them, with their claims. The oldest are looked at first, so that every queue is gone through twice at most: all who
    /// wait behind one in conflict with everybody are found with it, and all who want a lock alone with one that shares it.
    pub(super) fn and_behind(&self, waiters: Vec<(u64, LockKey, Claim)>) -> BTreeMap<u64, Claim> {
        let mut found: BTreeMap<u64, Claim> = waiters.iter().map(|(sequence, _, claim)| (*sequence, *claim)).collect();
        let mut work: BTreeMap<(u64, LockKey), Claim> =
            waiters.into_iter().map(|(sequence, key, claim)| ((sequence, key), claim)).collect();
        let (mut all, mut alone) = (BTreeSet::new(), BTreeSet::new());
        while let Some(((sequence, key), claim)) = work.pop_first() {
            for key in self.waits_at(key, claim, sequence) {
                let Some(lock) = self.locks.get(&key) else { continue };
                let Some(mode) = lock.queue.get(&sequence).map(|waiter| waiter.mode) else { continue };
                let gone_through = if mode == Mode::Shared { &mut alone } else { &mut all };
                if !gone_through.insert(key.clone()) {
                    continue;
                }
                for (behind, waiter) in lock.queue.range(sequence + 1..) {
                    if conflict(mode, waiter.mode) && found.insert(*behind, waiter.claim).is_none() {
                        work.insert((*behind, key.clone()), waiter.claim);
                    }
                }
            }
        }
        found
    }

    /// Every queue where this waiter stands.
    fn waits_at(&self, key: LockKey, claim: Claim, sequence: u64) -> Vec<LockKey> {
        let members = match claim {
            Claim::Request(request) => self.members_waiting(request, sequence),
            Claim::Take(_) => Vec::new(),
        };
        if members.is_empty() { vec![key] } else { members }
    }

    /// Somebody holds this lock now, too: it may pass sets elsewhere that lack it. Other holders may do so only now where a
    /// set lacks these permits.
    pub(super) fn holder_came(&mut self, key: &LockKey, claim: Claim, mode: Mode) {
        let Some(lock) = self.locks.get(key).filter(|lock| 0 < lock.sets) else { return };
        let free = u64::from(lock.limit.unwrap_or_default()).saturating_sub(lock.permits_held + lock.permits_reserved);
        let lacks_now = |set: &Waiter| (free + 1..=free + permits_of(mode)).contains(&permits_of(set.mode));
        if lock.queue.values().any(|waiter| waiter.purpose == Purpose::Set && lacks_now(waiter)) {
            return self.holders_changed(key);
        }
        claim.session().into_iter().for_each(|id| self.look_again_for(id));
    }

    /// Sets that wait for this lock may lack only now what all its holders have, who may pass those sets elsewhere.
    pub(super) fn holders_changed(&mut self, key: &LockKey) {
        let Some(lock) = self.locks.get(key).filter(|lock| 0 < lock.sets) else { return };
        let sessions: BTreeSet<SessionId> = lock.holders.values().filter_map(|holder| holder.claim.session()).collect();
        sessions.into_iter().for_each(|id| self.look_again_for(id));
    }

    /// Looks again at every queue where this session waits.
    fn look_again_for(&mut self, id: SessionId) {
        let standings = self.sessions.get(&id).into_iter().flat_map(|session| session.standings());
        let waits = standings.filter(|(_, _, standing)| matches!(standing, Standing::Waits(_)));
        self.touched.extend(waits.map(|(_, key, _)| key.clone()));
    }
}

/// Those of a queue who stay in it, as far as it was gone through: whether they are surely in the way of one further back.
#[derive(Default)]
struct Stay {
    /// One stays that shares the lock with nobody, and one that does not barge either.
    alone: bool,
    alone_and_fair: bool,
    /// Sessions that may pass some of them all the same; looked up once.
    may_pass: BTreeMap<SessionId, bool>,
}

impl Stay {
    fn note(&mut self, waiter: &Waiter) {
        let alone = waiter.mode != Mode::Shared;
        self.alone |= alone;
        self.alone_and_fair |= alone && !waiter.barges();
    }

    fn block(&mut self, machine: &Machine, key: &LockKey, waiter: &Waiter) -> bool {
        let in_the_way = if waiter.barges() { self.alone_and_fair } else { self.alone };
        if !in_the_way || matches!(waiter.purpose, Purpose::Upgrade(_)) {
            return false;
        }
        let Some(id) = waiter.claim.session() else { return true };
        !*self.may_pass.entry(id).or_insert_with(|| machine.may_pass(id, key))
    }
}

/// Who asks whether the way is clear: whoever stands before this number counts.
#[derive(Clone, Copy)]
struct Ahead {
    before: u64,
    mode: Mode,
    barges: bool,
}

/// Whether two cannot hold a lock together, or would take permits from each other.
pub(super) fn conflict(one: Mode, other: Mode) -> bool {
    one != Mode::Shared || other != Mode::Shared
}

/// Whether a hold in one mode is as good as one in the other: it may be entered again so.
pub(super) fn covers(held: Mode, asked: Mode) -> bool {
    match (held, asked) {
        (Mode::Exclusive, Mode::Exclusive | Mode::Shared) | (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { count: held, .. }, Mode::Permits { count: asked, .. }) => 0 < asked && asked <= held,
        (Mode::Exclusive | Mode::Shared | Mode::Permits { .. }, _) => false,
    }
}

/// How many of a queue barge.
pub(super) fn barging_among<'a>(waiters: impl Iterator<Item = &'a Waiter>) -> usize {
    waiters.filter(|waiter| waiter.barges()).count()
}

/// How many of a queue stand there for a set.
pub(super) fn sets_among<'a>(waiters: impl Iterator<Item = &'a Waiter>) -> usize {
    waiters.filter(|waiter| waiter.purpose == Purpose::Set).count()
}

/// The request behind a set's claim.
pub(super) fn request_of_set(waiter: &Waiter) -> Option<RequestId> {
    match (waiter.purpose, waiter.claim) {
        (Purpose::Set, Claim::Request(request)) => Some(request),
        (Purpose::Set | Purpose::Hold | Purpose::Upgrade(_), _) => None,
    }
}
