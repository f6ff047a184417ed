//! Everything that is derived from the records, over all locks and sessions. One function changes the indexes when a
//! record is added or removed, both while commands are applied and while a state is loaded.

use std::collections::{BTreeMap, BTreeSet};

use super::{Delayed, DocumentIndex, Holder, Owners, SessionRecord, State, Tombstone, Waiter};
use crate::model::{FencingToken, Handle, LeaseRequestId, LockKey, LogTime, Namespace, ProcessId, SessionId, Totals};

/// Indexes that make a walk over all records unnecessary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Indexes {
    /// Everything with a deadline, in order.
    pub(crate) deadlines: BTreeSet<(LogTime, DeadlineOf)>,
    /// Sessions and tombstones by their handle.
    pub(crate) handles: BTreeMap<(Namespace, Handle), SessionId>,
    /// How much of its quotas each namespace uses.
    pub(crate) usage: BTreeMap<Namespace, Usage>,
    /// Sizes of the whole state, without the number of grants.
    pub(crate) totals: Totals,
    /// Locks for which a set waits.
    pub(crate) set_locks: BTreeSet<LockKey>,
    /// Sessions with several requests that wait or hold. Only they may overtake waiting sets.
    pub(crate) sessions_with_several: BTreeSet<(Namespace, SessionId)>,
    /// Named owners by what they hold and wait for.
    pub(crate) owners: Owners,
    /// Recalled holds by their session.
    pub(crate) recalled: BTreeMap<SessionId, BTreeSet<FencingToken>>,
    /// The index that finds documents.
    pub(crate) documents: DocumentIndex,
}

/// What ends at a deadline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeadlineOf {
    /// A session, with everything that it holds or waits for.
    Session(SessionId),
    /// The lease of a take.
    Lease(LockKey, FencingToken),
    /// The patience of a waiter.
    Wait(LockKey, u64),
    /// The time for which an ended hold keeps its name closed.
    Delay(LockKey, FencingToken),
    /// The memory of an ended session.
    Tombstone(SessionId),
    /// The memory of a take.
    FinishedLease(LockKey, LeaseRequestId),
    /// The memory of a process.
    Process(Namespace, ProcessId),
    /// The time without grants after a restore.
    Opening,
    /// The next part of a command that frees many documents.
    Unlocking,
    /// The longest time that a hold asked for.
    AtMost(LockKey, FencingToken),
}

/// How much of its quotas a namespace uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Live sessions and tombstones.
    pub(crate) sessions: u64,
    /// Locks in use.
    pub(crate) locks: u64,
    /// Takes that wait or hold, and remembered ones.
    pub(crate) takes: u64,
    /// Requests that wait.
    pub(crate) waiters: u64,
    /// Processes that gave signs of life.
    pub(crate) processes: u64,
}

/// How an index changes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// The item was added.
    Came,
    /// The item was removed.
    Went,
}

impl Change {
    pub(super) fn put<T: Ord>(self, set: &mut BTreeSet<T>, item: T) {
        match self {
            Self::Came => drop(set.insert(item)),
            Self::Went => drop(set.remove(&item)),
        }
    }

    fn count(self, number: &mut u64) {
        match self {
            Self::Came => *number += 1,
            Self::Went => *number -= 1,
        }
    }
}

impl Indexes {
    /// The indexes that the records of this state give.
    pub(super) fn of(state: &State) -> Self {
        let mut index = Self::default();
        for (id, session) in &state.sessions {
            index.change_session(*id, &session.record, Change::Came);
            if session.has_several() {
                index.sessions_with_several.insert((session.record.namespace.clone(), *id));
            }
        }
        for (id, tombstone) in &state.tombstones {
            index.change_tombstone(*id, tombstone, Change::Came);
        }
        for (key, lock) in &state.locks {
            index.change_lock(key, Change::Came);
            lock.holders.iter().for_each(|(token, holder)| index.change_holder(key, *token, holder, Change::Came));
            lock.queue.iter().for_each(|(place, waiter)| index.change_waiter(key, *place, waiter, Change::Came));
            lock.delays.iter().for_each(|(token, delayed)| index.change_delay(key, *token, delayed, Change::Came));
            lock.leases.keys().for_each(|_| index.count(&key.namespace, |usage| &mut usage.takes, Change::Came));
            if lock.queue.has_sets() {
                index.set_locks.insert(key.clone());
            }
        }
        for ((lock, id), take) in &state.finished_leases {
            index.deadlines.insert((take.forget, DeadlineOf::FinishedLease(lock.clone(), *id)));
            index.count(&lock.namespace, |usage| &mut usage.takes, Change::Came);
        }
        for (key, free) in &state.documents {
            index.documents.change_free(key, free, Change::Came);
        }
        for ((namespace, process), record) in &state.processes {
            index.deadlines.insert((record.forget_after, DeadlineOf::Process(namespace.clone(), process.clone())));
            index.count(namespace, |usage| &mut usage.processes, Change::Came);
        }
        index.deadlines.extend(state.globals.closed_until.map(|until| (until, DeadlineOf::Opening)));
        index.deadlines.extend(state.globals.unlocking.first().map(|first| (first.since, DeadlineOf::Unlocking)));
        index
    }

    /// Moves a deadline; `None` on either side means that there is none.
    pub(crate) fn move_deadline(&mut self, from: Option<LogTime>, to: Option<LogTime>, due: DeadlineOf) {
        if let Some(from) = from {
            self.deadlines.remove(&(from, due.clone()));
        }
        if let Some(to) = to {
            self.deadlines.insert((to, due));
        }
    }

    /// Counts one item more or less of a namespace's quotas. A namespace that uses nothing any more is forgotten.
    pub(crate) fn count(&mut self, namespace: &Namespace, of: fn(&mut Usage) -> &mut u64, change: Change) {
        if change == Change::Came {
            return change.count(of(self.usage.entry(namespace.clone()).or_default()));
        }
        let Some(usage) = self.usage.get_mut(namespace) else { return };
        change.count(of(usage));
        if *usage == Usage::default() {
            self.usage.remove(namespace);
        }
    }

    /// Adds or removes a live session, without its claims.
    pub(super) fn change_session(&mut self, id: SessionId, session: &SessionRecord, change: Change) {
        change.put(&mut self.deadlines, (session.deadline, DeadlineOf::Session(id)));
        self.change_handle(&session.namespace, &session.handle, id, change);
        self.count(&session.namespace, |usage| &mut usage.sessions, change);
        change.count(&mut self.totals.sessions);
    }

    pub(super) fn change_tombstone(&mut self, id: SessionId, tombstone: &Tombstone, change: Change) {
        change.put(&mut self.deadlines, (tombstone.deadline, DeadlineOf::Tombstone(id)));
        self.change_handle(&tombstone.namespace, &tombstone.handle, id, change);
        self.count(&tombstone.namespace, |usage| &mut usage.sessions, change);
    }

    fn change_handle(&mut self, namespace: &Namespace, handle: &Handle, id: SessionId, change: Change) {
        let key = (namespace.clone(), handle.clone());
        match change {
            Change::Came => drop(self.handles.insert(key, id)),
            Change::Went => drop(self.handles.remove(&key)),
        }
    }

    pub(super) fn change_lock(&mut self, key: &LockKey, change: Change) {
        self.count(&key.namespace, |usage| &mut usage.locks, change);
        change.count(&mut self.totals.locks);
    }

    pub(super) fn change_holder(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, change: Change) {
        holder.own_ends(key, token).for_each(|end| change.put(&mut self.deadlines, end));
        self.change_hold(key, token, holder, change);
        self.documents.change_held(key, token, holder, change);
        if holder.is_recalled() {
            self.change_recalled(holder.request.claim.session(), token, change);
        }
        change.count(&mut self.totals.holders);
    }

    /// Adds or removes a recalled hold.
    pub(crate) fn change_recalled(&mut self, session: Option<SessionId>, token: FencingToken, change: Change) {
        let Some(session) = session else { return };
        let tokens = self.recalled.entry(session).or_default();
        change.put(tokens, token);
        if tokens.is_empty() {
            self.recalled.remove(&session);
        }
    }

    pub(super) fn change_waiter(&mut self, key: &LockKey, place: u64, waiter: &Waiter, change: Change) {
        if let Some(deadline) = waiter.deadline {
            change.put(&mut self.deadlines, (deadline, DeadlineOf::Wait(key.clone(), place)));
        }
        self.change_wait(key, place, waiter, change);
        self.count(&key.namespace, |usage| &mut usage.waiters, change);
        change.count(&mut self.totals.waiters);
    }

    pub(super) fn change_delay(&mut self, key: &LockKey, token: FencingToken, delayed: &Delayed, change: Change) {
        change.put(&mut self.deadlines, (delayed.until, DeadlineOf::Delay(key.clone(), token)));
    }
}
