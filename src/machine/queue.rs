//! Which waiter of a queue is next. The rule is first come, first served over all modes. It has two exceptions: barging
//! requests, and sessions that hold what a waiting set needs.
//!
//! A waiter is eligible if the holders admit it and no waiter ahead of it conflicts with it, except those that it may
//! overtake. A set is eligible if that is true for each of its locks. A session overtakes, on every other name, all
//! sets that wait for a name which it holds: the holders do not admit the set there, or a request ahead of it, and that
//! one conflicts with the session's hold. It also overtakes all requests that wait behind such a set, directly or
//! through others. Otherwise the session and the set would wait for each other permanently.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use crate::faults::{self, Fault};
use crate::model::{Claim, Fairness, FencingToken, LockKey, Mode, QuotaKind, SessionId};
use crate::state::{ClaimState, HEAD, Holder, Lock, Purpose, Waiter, Way, looked_at};

impl Machine {
    /// The first waiter from this place on that could be granted now, or that has timed out. `None` if all of them must
    /// continue to wait. Where no waiter can be granted, those that timed out may be left to the sweep of deadlines.
    pub(super) fn next_in_queue(&self, key: &LockKey, from: u64) -> Option<u64> {
        let lock = self.state.lock(key)?;
        if self.is_closed() || lock.is_full() {
            return None;
        }
        if faults::on(Fault::LifoQueue) {
            return lock.queue.range(from..).next_back().map(|(sequence, _)| *sequence);
        }
        let is_next = |sequence: u64, waiter: &Waiter| {
            looked_at();
            self.waiter_due(key, sequence).is_some() || self.eligible(key, lock, sequence, waiter)
        };
        if !lock.queue.has_sets() {
            // The first waiter blocks all others, unless it barges: then it blocks only fair ones.
            let (first, waiter) = lock.queue.first_key_value()?;
            if is_next(*first, waiter) {
                return Some(*first);
            }
            return if waiter.barges() { lock.queue.first_barging(|mode| self.has_capacity(lock, mode)) } else { None };
        }
        let mut may_pass = BTreeMap::new();
        let mut has_to_stay = |sequence: u64, waiter: &Waiter| {
            let way = waiter.way();
            let blocked = lock.queue.first_in_the_way(way).is_some_and(|first| first < sequence);
            let passes = |id| *may_pass.entry(id).or_insert_with(|| self.may_pass(id, key));
            blocked && !waiter.request.claim.session().is_some_and(passes)
        };
        let mut waiters = lock.queue.range(from..);
        let next = waiters.find(|(sequence, waiter)| {
            looked_at();
            let due = self.waiter_due(key, **sequence).is_some();
            due || (!has_to_stay(**sequence, waiter) && is_next(**sequence, waiter))
        });
        next.map(|(sequence, _)| *sequence)
    }

    /// Whether the lock can have one more holder: the holders admit the mode, and their number is below its bound.
    pub(super) fn has_capacity(&self, lock: &Lock, mode: Mode) -> bool {
        lock.admits(mode) && self.quotas.one_more(QuotaKind::HoldersOfLock, lock.kept()).is_ok()
    }

    /// Whether this waiter could be granted now. A set could if it fits at all of its locks.
    pub(super) fn eligible(&self, key: &LockKey, lock: &Lock, sequence: u64, waiter: &Waiter) -> bool {
        match (waiter.purpose, waiter.request.claim) {
            (Purpose::Upgrade(token), _) => lock.admits_upgrade(token),
            (Purpose::Set, Claim::Request(request)) => {
                let session = request.session;
                let members = self.state.members_waiting(request, sequence);
                let has = |key: &LockKey| {
                    self.state.lock(key).is_some_and(|lock| self.member_fits(key, lock, sequence, session))
                };
                if faults::on(Fault::SetGrantedInPart) {
                    return members.iter().any(has);
                }
                members.iter().all(has)
            }
            (Purpose::Hold | Purpose::Set, _) => {
                let way = waiter.way();
                self.has_capacity(lock, waiter.request.mode)
                    && self.not_blocked_ahead(key, lock, (way, sequence), waiter.request.claim.session())
            }
        }
    }

    /// Whether a waiting set could be granted this one of its locks.
    pub(super) fn member_fits(&self, key: &LockKey, lock: &Lock, sequence: u64, session: SessionId) -> bool {
        let Some(mode) = lock.queue.get(&sequence).map(|waiter| waiter.request.mode) else { return false };
        let way = Way { mode, barges: false };
        self.has_capacity(lock, mode) && self.not_blocked_ahead(key, lock, (way, sequence), Some(session))
    }

    /// Whether a new request may hold the lock at once: the holders admit it, and it overtakes only waiters that it may
    /// overtake.
    pub(super) fn may_enter(
        &self,
        key: &LockKey,
        lock: &Lock,
        mode: Mode,
        fairness: Fairness,
        session: Option<SessionId>,
    ) -> bool {
        let way = Way { mode, barges: fairness == Fairness::Barging };
        if faults::on(Fault::ReaderPassesWriter) && mode == Mode::Shared {
            return lock.admits(mode);
        }
        if lock.queue.is_empty() || (way.barges && lock.queue.first_in_the_way(way).is_none()) {
            return lock.admits(mode);
        }
        lock.queue.has_sets() && lock.admits(mode) && self.not_blocked_ahead(key, lock, (way, u64::MAX), session)
    }

    /// Whether no waiter before this place blocks a request of this mode and fairness.
    fn not_blocked_ahead(
        &self,
        key: &LockKey,
        lock: &Lock,
        (way, before): (Way, u64),
        session: Option<SessionId>,
    ) -> bool {
        let first = lock.queue.first_in_the_way(way).filter(|first| *first < before);
        let Some(first) = first else { return true };
        // A request overtakes only sets and the waiters behind them.
        let Some(session) = session.filter(|session| lock.queue.has_sets() && self.may_pass(*session, key)) else {
            return false;
        };
        let passable = self.passable(session, key);
        lock.queue.range(first..before).all(|(sequence, waiter)| {
            looked_at();
            !way.is_blocked_by(waiter) || passable.contains_key(sequence)
        })
    }

    /// The other locks that a session holds, each with the session's hold.
    fn held_elsewhere<'a>(
        &'a self,
        session: SessionId,
        at: &'a LockKey,
    ) -> impl Iterator<Item = (&'a LockKey, &'a Lock, (FencingToken, &'a Holder))> {
        let standings = self.state.claims(session);
        standings.filter(move |(_, key, _)| *key != at).filter_map(|(_, key, standing)| {
            let ClaimState::Holding(token) = standing else { return None };
            let lock: &Lock = self.state.lock(key)?;
            let holder: &Holder = lock.holders.get(&token)?;
            Some((key, lock, (token, holder)))
        })
    }

    /// Whether a session holds another lock for which a set waits. Only such a session overtakes waiters that block it.
    fn may_pass(&self, session: SessionId, at: &LockKey) -> bool {
        self.held_elsewhere(session, at).any(|(_, lock, _)| lock.queue.has_sets())
    }

    /// The waiters that a session overtakes at this lock: those that wait for another lock which the session holds, and
    /// all waiters behind them. Some of those that wait only for the other lock are left out.
    pub(super) fn passable(&self, session: SessionId, at: &LockKey) -> BTreeMap<u64, Claim> {
        let mut waiters = Vec::new();
        let awaited = self.held_elsewhere(session, at).filter(|(_, lock, _)| lock.queue.has_sets());
        for (key, lock, (token, holder)) in awaited {
            let mut shared = false;
            for (sequence, waiter) in lock.queue.iter() {
                if waiter.waits_for(token, holder.request.mode) && !lock.admits(waiter.request.mode) {
                    let shares = waiter.request.mode == Mode::Shared;
                    // A later shared waiter outside a set is in no other queue, and what is behind it is behind the
                    // first one too.
                    if !(shared && shares) || waiter.purpose == Purpose::Set {
                        waiters.push((*sequence, key.clone(), waiter.request.claim));
                    }
                    shared |= shares;
                    // All later waiters are behind this one.
                    if !shares {
                        break;
                    }
                }
            }
        }
        self.blocked_behind(waiters)
    }

    /// All requests that wait behind these waiters, directly or through others, and the waiters themselves. A waiter is
    /// given by its sequence number, one of its locks and its claim; the result maps numbers to claims.
    ///
    /// The oldest are looked at first, so that every queue is walked at most twice: the first waiter that conflicts
    /// with all modes finds all waiters behind it, and the first shared one finds all exclusive ones.
    pub(super) fn blocked_behind(&self, waiters: Vec<(u64, LockKey, Claim)>) -> BTreeMap<u64, Claim> {
        let mut found: BTreeMap<u64, Claim> = waiters.iter().map(|(sequence, _, claim)| (*sequence, *claim)).collect();
        let mut work: BTreeMap<(u64, LockKey), Claim> =
            waiters.into_iter().map(|(sequence, key, claim)| ((sequence, key), claim)).collect();
        let (mut all, mut alone) = (BTreeSet::new(), BTreeSet::new());
        while let Some(((sequence, key), claim)) = work.pop_first() {
            for key in self.waits_at(&key, claim, sequence) {
                let Some(lock) = self.state.lock(&key) else { continue };
                let Some(mode) = lock.queue.get(&sequence).map(|waiter| waiter.request.mode) else { continue };
                let gone_through = if mode == Mode::Shared { &mut alone } else { &mut all };
                if !gone_through.insert(key.clone()) {
                    continue;
                }
                for (behind, waiter) in lock.queue.range(sequence + 1..) {
                    if mode.conflicts_with(waiter.request.mode) && found.insert(*behind, waiter.request.claim).is_none()
                    {
                        work.insert((*behind, key.clone()), waiter.request.claim);
                    }
                }
            }
        }
        // Every lock may have an upgrade with this number, and no request overtakes one.
        found.remove(&HEAD);
        found
    }

    /// The locks for which this request or take waits under this sequence number. Of a set whose session is gone, only
    /// the given lock is known.
    pub(super) fn waits_at(&self, key: &LockKey, claim: Claim, sequence: u64) -> Vec<LockKey> {
        let members = match claim {
            Claim::Request(request) => self.state.members_waiting(request, sequence),
            Claim::Lease(_) => Vec::new(),
        };
        if members.is_empty() { vec![key.clone()] } else { members }
    }

    /// Checks again the queues where the session of a new hold waits, because the hold may let it overtake waiting sets
    /// there. If a waiter lacks permits only because of this hold, the sessions of the other holders may overtake the
    /// sets behind it too, so their queues are checked as well. A set that lacked permits before was overtaken already.
    pub(super) fn recheck_passing(&mut self, key: &LockKey, claim: Claim, mode: Mode) {
        let Some(lock) = self.state.lock(key).filter(|lock| lock.queue.has_sets()) else { return };
        let free = u64::from(lock.limit.unwrap_or_default()).saturating_sub(lock.permits_held + lock.permits_reserved);
        if lock.queue.holds_back_a_set(free, free + mode.permits()) {
            return self.holders_changed(key);
        }
        claim.session().into_iter().for_each(|id| self.look_again_for(id, key));
    }

    /// Checks again the queues where the sessions of this lock's holders wait. Sets that wait for this lock may now
    /// lack what those sessions hold, and then the sessions overtake those sets.
    pub(super) fn holders_changed(&mut self, key: &LockKey) {
        let Some(lock) = self.state.lock(key).filter(|lock| lock.queue.has_sets()) else { return };
        let sessions: BTreeSet<SessionId> =
            lock.holders.values().filter_map(|holder| holder.request.claim.session()).collect();
        sessions.into_iter().for_each(|id| self.look_again_for(id, key));
    }

    /// Checks again every queue where this session waits, except the queue of the lock `held`.
    fn look_again_for(&mut self, id: SessionId, held: &LockKey) {
        let standings = self.state.claims(id);
        let waits = standings.filter(|(_, key, standing)| *key != held && matches!(standing, ClaimState::Waiting(_)));
        let keys: Vec<LockKey> = waits.map(|(_, key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.check_queue(key, 0));
    }
}
