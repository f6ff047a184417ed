//! Indexes over all locks and sessions, derived from the records. One function updates the indexes when a record is
//! added or removed, both while commands are applied and while a state is loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::document_index::DocumentIndex;
use super::holder::{Delayed, Holder};
use super::indexed::{Change, DeadlineOf};
use super::owners::{Nested, Owned, OwnerKey, Owners};
use super::session::{SessionRecord, Tombstone};
use super::waiters::Waiter;
use crate::model::{FencingToken, Handle, LockKey, LogTime, Namespace, Parent, SessionId, Totals};

/// Indexes that save a walk over all records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Indexes {
    /// Everything with a deadline, in order.
    pub(crate) deadlines: BTreeSet<(LogTime, DeadlineOf)>,
    pub(crate) handles: BTreeMap<(Namespace, Handle), SessionId>,
    /// The open sessions of each namespace.
    pub(crate) sessions: BTreeSet<(Namespace, SessionId)>,
    /// The open sessions of each namespace by the names of their processes.
    pub(crate) processes: BTreeSet<(Namespace, Arc<str>, SessionId)>,
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
    pub(crate) recalled: BTreeMap<SessionId, BTreeSet<FencingToken>>,
    pub(crate) documents: DocumentIndex,
}

/// How much of its quotas a namespace uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Live sessions and tombstones.
    pub(crate) sessions: u64,
    pub(crate) open_sessions: u64,
    pub(crate) locks: u64,
    /// Takes that wait, hold or are remembered.
    pub(crate) takes: u64,
    /// Holds of all locks.
    pub(crate) holders: u64,
    /// Requests that wait.
    pub(crate) waiters: u64,
    /// Processes that gave signs of life.
    pub(crate) processes: u64,
}

impl Indexes {
    /// Changes a deadline. `None` on either side means that there is no deadline.
    pub(crate) fn move_deadline(&mut self, from: Option<LogTime>, to: Option<LogTime>, due: DeadlineOf) {
        if let Some(from) = from {
            self.deadlines.remove(&(from, due.clone()));
        }
        if let Some(to) = to {
            self.deadlines.insert((to, due));
        }
    }

    /// Counts one item more or less of a namespace's quotas. Removes the entry of a namespace that uses nothing any
    /// more.
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
        change.put(&mut self.sessions, (session.namespace.clone(), id));
        change.put(&mut self.processes, (session.namespace.clone(), session.process_name(id), id));
        self.count(&session.namespace, |usage| &mut usage.sessions, change);
        self.count(&session.namespace, |usage| &mut usage.open_sessions, change);
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
        self.count(&key.namespace, |usage| &mut usage.holders, change);
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

    fn change_wait(&mut self, key: &LockKey, place: u64, waiter: &Waiter, change: Change) {
        let Some(owner) = waiter.request.owner_key() else { return };
        self.change_owned(owner.clone(), |owned| change.put(&mut owned.waits, (key.clone(), place)));
        // Such a hold may end while the run continues.
        let endless = !waiter.ends_automatically() && !waiter.is_for_a_while();
        self.change_parent(owner, waiter.request.choices().parent.as_ref(), endless, change);
    }

    fn change_hold(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, change: Change) {
        let Some(owner) = holder.request.owner_key() else { return };
        self.change_owned(owner.clone(), |owned| change.put(&mut owned.holds, (key.clone(), token)));
        self.change_parent(owner, holder.request.choices().parent.as_ref(), !holder.ends_automatically(), change);
    }

    fn change_parent(&mut self, child: OwnerKey, parent: Option<&Parent>, endless: bool, change: Change) {
        // No owner waits for its own end.
        let parent = parent.map(|parent| (parent.session, parent.owner.clone())).filter(|parent| *parent != child);
        let Some(parent) = parent else { return };
        self.change_owned(parent.clone(), |owned| Nested::change(&mut owned.children, child.clone(), endless, change));
        self.change_owned(child, |owned| Nested::change(&mut owned.parents, parent, endless, change));
    }

    fn change_owned(&mut self, owner: OwnerKey, change: impl FnOnce(&mut Owned)) {
        let owned = self.owners.entry(owner.clone()).or_default();
        change(owned);
        if *owned == Owned::default() {
            self.owners.remove(&owner);
        }
    }
}
