//! The state as a whole: its tables, look-ups in them, and the changes that keep the derived indexes up to date.

use std::collections::BTreeMap;

use super::documents::{FreeDocument, ProcessRecord};
use super::globals::Globals;
use super::holder::{Delayed, Holder};
use super::index::{Indexes, Usage};
use super::indexed::Change;
use super::lock::Lock;
use super::record::{DirtyKeys, RecordKey};
use super::session::{ClaimState, FinishedLease, Session, SessionRecord, Tombstone};
use super::waiters::{Purpose, Waiter};
use crate::history::History;
use crate::model::{
    Announcement, Claim, FencingToken, Kind, LeaseRequestId, LockKey, LogTime, Namespace, ProcessId, RequestId,
    SessionId,
};

/// All records, and everything that is derived from them.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(crate) globals: Globals,
    /// Boxed, like the sessions, because a tree whose keys are inserted in order is half empty.
    pub(crate) locks: BTreeMap<LockKey, Box<Lock>>,
    pub(crate) sessions: BTreeMap<SessionId, Box<Session>>,
    pub(crate) tombstones: BTreeMap<SessionId, Tombstone>,
    pub(crate) finished_leases: BTreeMap<(LockKey, LeaseRequestId), FinishedLease>,
    /// Documents of names without a holder. The last holder of each name held it as a document.
    pub(crate) documents: BTreeMap<LockKey, FreeDocument>,
    /// Processes that gave signs of life.
    pub(crate) processes: BTreeMap<(Namespace, ProcessId), ProcessRecord>,
    /// Announcements of nodes, by node id.
    pub(crate) nodes: BTreeMap<u64, Announcement>,
    /// What happened to the holders of locks.
    pub(crate) history: History,
    pub(crate) index: Indexes,
    /// Records that changed since they were last taken.
    pub(crate) dirty: DirtyKeys,
}

/// Look-ups, which change nothing.
impl State {
    pub(crate) fn lock(&self, key: &LockKey) -> Option<&Lock> {
        self.locks.get(key).map(Box::as_ref)
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(Box::as_ref)
    }

    /// When a session ends. For views of what it holds.
    pub(crate) fn session_deadline(&self, session: Option<SessionId>) -> Option<LogTime> {
        session.and_then(|id| self.session(id)).map(|session| session.record.deadline)
    }

    pub(crate) fn holder(&self, key: &LockKey, token: FencingToken) -> Option<&Holder> {
        self.locks.get(key)?.holders.get(&token).map(Box::as_ref)
    }

    /// A hold, to be changed in place. The caller must then call [`mark`](Self::mark).
    pub(crate) fn holder_mut(&mut self, key: &LockKey, token: FencingToken) -> Option<&mut Holder> {
        self.locks.get_mut(key)?.holders.get_mut(&token).map(Box::as_mut)
    }

    /// The holders of a lock, in the order of their grants.
    pub(crate) fn holders(&self, key: &LockKey) -> impl Iterator<Item = (FencingToken, &Holder)> {
        self.locks.get(key).into_iter().flat_map(|lock| &lock.holders).map(|(token, holder)| (*token, &**holder))
    }

    /// Returns what this hold still keeps closed after its end, or after it returned permits.
    pub(crate) fn delayed(&self, key: &LockKey, token: FencingToken) -> Option<&Delayed> {
        self.locks.get(key)?.delays.get(&token)
    }

    pub(crate) fn waiter(&self, key: &LockKey, place: u64) -> Option<&Waiter> {
        self.locks.get(key)?.queue.get(&place)
    }

    /// Every lock that a session waits for or holds, with the number of the request.
    pub(crate) fn claims(&self, session: SessionId) -> impl Iterator<Item = (u64, &LockKey, ClaimState)> {
        self.sessions.get(&session).into_iter().flat_map(|session| session.claims())
    }

    /// The locks that a request waits for or holds.
    pub(crate) fn claims_of(&self, request: RequestId) -> impl Iterator<Item = (&LockKey, ClaimState)> {
        self.sessions.get(&request.session).into_iter().flat_map(move |session| session.claims_of(request.number))
    }

    /// The locks for which a set waits under this sequence number.
    pub(crate) fn members_waiting(&self, request: RequestId, place: u64) -> Vec<LockKey> {
        let waiting = self.claims_of(request).filter(|(_, claim)| *claim == ClaimState::Waiting(place));
        waiting.map(|(key, _)| key.clone()).collect()
    }

    /// How much of its quotas a namespace uses.
    pub(crate) fn used(&self, namespace: &Namespace) -> Usage {
        self.index.usage.get(namespace).copied().unwrap_or_default()
    }
}

/// Functions that change records.
impl State {
    /// Marks a record as changed, added or removed.
    pub(crate) fn mark(&mut self, key: RecordKey) {
        self.dirty.touched(key);
    }

    /// The lock with this name, created if the name was free.
    pub(crate) fn lock_or_new(&mut self, key: &LockKey, kind: Kind, limit: Option<u32>) -> &mut Lock {
        // Only a semaphore has a limit.
        let limit = limit.filter(|_| kind == Kind::Semaphore);
        if !self.locks.contains_key(key) {
            self.index.change_lock(key, Change::Came);
            if limit.is_some() {
                self.mark(RecordKey::Semaphore(key.clone()));
            }
        }
        self.locks.entry(key.clone()).or_insert_with(|| Box::new(Lock::new(kind, limit)))
    }

    pub(crate) fn remove_lock(&mut self, key: &LockKey) {
        let Some(lock) = self.locks.remove(key) else { return };
        if lock.limit.is_some() {
            self.mark(RecordKey::Semaphore(key.clone()));
        }
        self.index.change_lock(key, Change::Went);
    }

    /// Adds a holder to a lock. No other hold ever had this token.
    pub(crate) fn insert_holder(&mut self, key: &LockKey, token: FencingToken, holder: Box<Holder>) {
        holder.claims().for_each(|claim| self.add_claim(key, claim, ClaimState::Holding(token)));
        self.index.change_holder(key, token, &holder, Change::Came);
        if let Some(lock) = self.locks.get_mut(key) {
            lock.permits_held += holder.request.mode.permits();
            lock.holders.insert(token, holder);
        }
        self.dirty.born(RecordKey::Holder(key.clone(), token));
    }

    /// Removes a hold from its lock. Its requests keep their claims until [`remove_claim`](Self::remove_claim).
    pub(crate) fn remove_holder(&mut self, key: &LockKey, token: FencingToken) -> Option<Box<Holder>> {
        let lock = self.locks.get_mut(key)?;
        let holder = lock.holders.remove(&token)?;
        lock.permits_held -= holder.request.mode.permits();
        self.index.change_holder(key, token, &holder, Change::Went);
        self.dirty.gone(RecordKey::Holder(key.clone(), token));
        Some(holder)
    }

    /// Adds a waiter to the queue of a lock.
    pub(crate) fn insert_waiter(&mut self, key: &LockKey, place: u64, waiter: Waiter) {
        let (claim, purpose) = (waiter.request.claim, waiter.purpose);
        self.index.change_waiter(key, place, &waiter, Change::Came);
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.insert(place, waiter);
        }
        if purpose == Purpose::Set {
            self.index.set_locks.insert(key.clone());
        }
        self.dirty.born(RecordKey::Waiter(key.clone(), place));
        self.add_claim(key, claim, ClaimState::Waiting(place));
    }

    /// Removes a waiter from its queue. Its request keeps its claim until [`remove_claim`](Self::remove_claim).
    pub(crate) fn remove_waiter(&mut self, key: &LockKey, place: u64) -> Option<Waiter> {
        let queue = &mut self.locks.get_mut(key)?.queue;
        let waiter = queue.remove(place)?;
        if waiter.purpose == Purpose::Set && !queue.has_sets() {
            self.index.set_locks.remove(key);
        }
        self.index.change_waiter(key, place, &waiter, Change::Went);
        self.dirty.gone(RecordKey::Waiter(key.clone(), place));
        Some(waiter)
    }

    /// Adds an ended hold that keeps its name closed or permits reserved.
    pub(crate) fn insert_delay(&mut self, key: &LockKey, token: FencingToken, delayed: Delayed) {
        let Some(lock) = self.locks.get_mut(key) else { return };
        lock.permits_reserved += delayed.holder.request.mode.permits();
        self.index.change_delay(key, token, &delayed, Change::Came);
        lock.delays.insert(token, delayed);
        self.mark(RecordKey::Delay(key.clone(), token));
    }

    pub(crate) fn remove_delay(&mut self, key: &LockKey, token: FencingToken) -> Option<Delayed> {
        let lock = self.locks.get_mut(key)?;
        let delayed = lock.delays.remove(&token)?;
        lock.permits_reserved -= delayed.holder.request.mode.permits();
        self.index.change_delay(key, token, &delayed, Change::Went);
        self.mark(RecordKey::Delay(key.clone(), token));
        Some(delayed)
    }

    /// Records the claim's new state with its session or lock.
    pub(crate) fn add_claim(&mut self, key: &LockKey, claim: Claim, state: ClaimState) {
        match claim {
            Claim::Request(RequestId { session: id, number }) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                let had_several = session.has_several();
                session.add_claim(number, key, state);
                if !had_several && session.has_several() {
                    self.index.sessions_with_several.insert((session.record.namespace.clone(), id));
                }
            }
            Claim::Lease(take) => {
                if let Some(lock) = self.locks.get_mut(key) {
                    lock.leases.insert(take, state);
                }
            }
        }
    }

    /// Ends a request's claim to this lock. Returns whether its session lives and the request still waits for another
    /// lock or holds one.
    pub(crate) fn remove_claim(&mut self, request: RequestId, key: &LockKey) -> bool {
        let Some(session) = self.sessions.get_mut(&request.session) else { return false };
        let had_several = session.has_several();
        let over = session.remove_claim(request.number, key);
        if had_several && !session.has_several() {
            self.index.sessions_with_several.remove(&(session.record.namespace.clone(), request.session));
        }
        !over
    }

    pub(crate) fn insert_session(&mut self, id: SessionId, record: SessionRecord) {
        self.index.change_session(id, &record, Change::Came);
        self.sessions.insert(id, Box::new(Session::new(record)));
        self.mark(RecordKey::Session(id));
    }

    /// Removes a session with its remembered answers.
    pub(crate) fn remove_session(&mut self, id: SessionId) -> Option<Box<Session>> {
        let session = self.sessions.remove(&id)?;
        self.index.change_session(id, &session.record, Change::Went);
        if session.has_several() {
            self.index.sessions_with_several.remove(&(session.record.namespace.clone(), id));
        }
        session.finished.keys().for_each(|number| self.dirty.gone(RecordKey::Finished(id, *number)));
        self.mark(RecordKey::Session(id));
        Some(session)
    }

    pub(crate) fn insert_tombstone(&mut self, id: SessionId, tombstone: Tombstone) {
        self.index.change_tombstone(id, &tombstone, Change::Came);
        self.tombstones.insert(id, tombstone);
        self.mark(RecordKey::Tombstone(id));
    }

    pub(crate) fn remove_tombstone(&mut self, id: SessionId) {
        let Some(tombstone) = self.tombstones.remove(&id) else { return };
        self.index.change_tombstone(id, &tombstone, Change::Went);
        self.mark(RecordKey::Tombstone(id));
    }

    pub(crate) fn insert_document(&mut self, key: &LockKey, free: FreeDocument) {
        self.index.documents.change_free(key, &free, Change::Came);
        self.documents.insert(key.clone(), free);
        self.mark(RecordKey::Document(key.clone()));
    }

    pub(crate) fn remove_document(&mut self, key: &LockKey) {
        let Some(free) = self.documents.remove(key) else { return };
        self.index.documents.change_free(key, &free, Change::Went);
        self.mark(RecordKey::Document(key.clone()));
    }
}
