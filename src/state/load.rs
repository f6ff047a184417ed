//! Builds a state from its records, and everything that is derived from them.

use std::collections::BTreeMap;

use super::core::State;
use super::index::Indexes;
use super::indexed::{Change, DeadlineOf};
use super::lock::Lock;
use super::record::{Record, RecordKey};
use super::session::{FinishedLease, Session};
use crate::faults::{self, Fault};
use crate::history::History;
use crate::model::{Claim, Kind, LeaseRequestId, LockKey, LogTime, SessionId};

/// The error for records that contradict each other. The text names the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the records do not make a state: {0}")]
pub struct CorruptRecords(pub String);

impl State {
    /// The state that these records describe. Their order does not matter. Everything derived is built from them, and
    /// no record is dirty.
    ///
    /// # Errors
    /// Fails if records contradict each other.
    pub fn from_records(records: impl IntoIterator<Item = (RecordKey, Record)>) -> Result<Self, CorruptRecords> {
        let mut state = Self::default();
        let mut limits = Vec::new();
        let mut finished = Vec::new();
        let mut segments = BTreeMap::new();
        for (key, record) in records {
            match (key, record) {
                (RecordKey::Globals, Record::Globals(globals)) => state.globals = globals,
                (RecordKey::Holder(..), Record::Holder(_)) if faults::on(Fault::ForgottenHolders) => {}
                (RecordKey::Semaphore(lock), Record::Semaphore { limit, kept }) => limits.push((lock, limit, kept)),
                (RecordKey::Session(id), Record::Session(record)) => {
                    state.sessions.insert(id, Box::new(Session::new(record)));
                }
                (RecordKey::Finished(..), Record::Finished(_)) if faults::on(Fault::RequestMemoryLost) => {}
                (RecordKey::Finished(id, number), Record::Finished(done)) => finished.push((id, number, done)),
                (RecordKey::Tombstone(id), Record::Tombstone(tombstone)) => {
                    state.tombstones.insert(id, tombstone);
                }
                (RecordKey::Holder(lock, token), Record::Holder(holder)) => {
                    state.lock_entry(&lock, holder.request.mode.kind()).holders.insert(token, Box::new(holder));
                }
                (RecordKey::Waiter(lock, sequence), Record::Waiter(waiter)) => {
                    state.lock_entry(&lock, waiter.request.mode.kind()).queue.restore(sequence, waiter);
                }
                (RecordKey::Delay(lock, token), Record::Delay(delayed)) => {
                    state.lock_entry(&lock, delayed.holder.request.mode.kind()).delays.insert(token, delayed);
                }
                (RecordKey::FinishedLease(lock, id), Record::FinishedLease(take)) => {
                    state.finished_leases.insert((lock, id), take);
                }
                (RecordKey::Node(id), Record::Node(announcement)) => {
                    state.nodes.insert(id, announcement);
                }
                (RecordKey::History(namespace, number), Record::History(segment)) => {
                    segments.insert((namespace, number), segment);
                }
                (RecordKey::Document(lock), Record::Document(free)) => {
                    state.documents.insert(lock, free);
                }
                (RecordKey::Process(namespace, process), Record::Process(record)) => {
                    state.processes.insert((namespace, process), record);
                }
                (key, _) => return Err(CorruptRecords(format!("{key:?} has another kind of content"))),
            }
        }
        for (lock, limit, kept) in limits {
            if !kept && !state.locks.contains_key(&lock) {
                return Err(CorruptRecords(format!("semaphore {lock:?} has no holder and no waiter")));
            }
            let found = state.lock_entry(&lock, Kind::Semaphore);
            found.limit = Some(limit);
            found.limit_kept = kept;
        }
        for (id, number, done) in finished {
            let Some(session) = state.sessions.get_mut(&id) else {
                return Err(CorruptRecords(format!("finished request {id}#{number} has no session")));
            };
            session.finished.insert(number, done);
        }
        state.history = History::restored(segments).map_err(CorruptRecords)?;
        if faults::on(Fault::TokensOfThisProcess) {
            state.globals.tokens = 0;
        }
        if faults::on(Fault::LogTimeOfThisProcess) {
            state.globals.now = LogTime(0);
        }
        derive_claims(&mut state.locks, &mut state.sessions, &state.finished_leases)?;
        state.index = Indexes::of(&state);
        Ok(state)
    }

    fn lock_entry(&mut self, key: &LockKey, kind: Kind) -> &mut Lock {
        self.locks.entry(key.clone()).or_insert_with(|| Box::new(Lock::new(kind, None)))
    }
}

/// Builds the parts of locks and sessions that are derived from claims.
pub(super) fn derive_claims(
    locks: &mut BTreeMap<LockKey, Box<Lock>>,
    sessions: &mut BTreeMap<SessionId, Box<Session>>,
    finished_leases: &BTreeMap<(LockKey, LeaseRequestId), FinishedLease>,
) -> Result<(), CorruptRecords> {
    for (key, lock) in locks {
        for holder in lock.holders.values_mut() {
            let session = holder.request.claim.session().and_then(|id| sessions.get(&id));
            if let Some(shared) = session.and_then(|session| session.shared_metadata(&holder.request.metadata)) {
                holder.request.metadata = shared;
            }
        }
        lock.permits_held = lock.holders.values().map(|holder| holder.request.mode.permits()).sum();
        lock.permits_reserved = lock.delays.values().map(|delayed| delayed.holder.request.mode.permits()).sum();
        lock.queue.derive_index();
        let claims: Vec<_> = lock.claims().collect();
        for (claim, state) in claims {
            match claim {
                Claim::Request(request) => {
                    let Some(session) = sessions.get_mut(&request.session) else {
                        return Err(CorruptRecords(format!("request {request} has no session")));
                    };
                    session.add_claim(request.number, key, state);
                }
                Claim::Lease(take) => {
                    let corrupt = |what| Err(CorruptRecords(format!("take {take:?} of {key:?} {what}")));
                    if finished_leases.contains_key(&(key.clone(), take)) {
                        return corrupt("is live and finished");
                    }
                    let Some(handle) = lock.handle_at(state) else { return corrupt("has no handle") };
                    if lock.leases.insert(take, state).is_some() || lock.handles.insert(handle, take).is_some() {
                        return corrupt("is there twice");
                    }
                }
            }
        }
    }
    Ok(())
}

impl Indexes {
    /// The indexes of a state with these records.
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
}
