//! The state as records: what is mirrored on disk, sent in snapshots and hashed into the state's digest.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::history::{History, Segment};
use super::lock::Lock;
use super::state::{
    Delayed, Finished, FreeDocument, Globals, Holder, ProcessRecord, Purpose, Request, Session, SessionRecord,
    Standing, Take, Tombstone, Waiter,
};
use super::{Machine, state};
use crate::faults::{self, Fault};
use crate::model::{
    Announcement, Claim, FencingToken, Kind, LockKey, Namespace, ProcessId, RequestId, SessionId, TakeId,
};

/// Names one record. The order of the variants is the order of the keys on disk; new ones are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecordKey {
    /// Counters, log time and settings.
    Globals,
    /// A semaphore's limit; other locks are known by their holders and waiters alone.
    Semaphore(LockKey),
    /// One live session.
    Session(SessionId),
    /// A finished request of a session, remembered until its client says that it was answered.
    Finished(SessionId, u64),
    /// An ended session.
    Tombstone(SessionId),
    /// One holder, by its token.
    Holder(LockKey, FencingToken),
    /// One waiter, by its place number.
    Waiter(LockKey, u64),
    /// A finished take without a session.
    Take(LockKey, TakeId),
    /// What a node said of itself.
    Node(u64),
    /// A lost hold that keeps its name closed, by its token.
    Delay(LockKey, FencingToken),
    /// A run of a namespace's history, by its number.
    History(Namespace, u64),
    /// The document of a lock that nobody holds.
    Document(LockKey),
    /// A process that gave signs of life.
    Process(Namespace, ProcessId),
}

/// One record's content. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// See [`RecordKey::Globals`].
    Globals(Globals),
    /// See [`RecordKey::Semaphore`].
    Semaphore {
        /// How many permits there are.
        limit: u32,
        /// It was set from outside and stays.
        kept: bool,
    },
    /// See [`RecordKey::Session`].
    Session(SessionRecord),
    /// See [`RecordKey::Finished`].
    Finished(Finished),
    /// See [`RecordKey::Tombstone`].
    Tombstone(Tombstone),
    /// See [`RecordKey::Holder`].
    Holder(Holder),
    /// See [`RecordKey::Waiter`].
    Waiter(Waiter),
    /// See [`RecordKey::Take`].
    Take(Take),
    /// See [`RecordKey::Node`].
    Node(Announcement),
    /// See [`RecordKey::Delay`].
    Delay(Delayed),
    /// See [`RecordKey::History`].
    History(Segment),
    /// See [`RecordKey::Document`].
    Document(FreeDocument),
    /// See [`RecordKey::Process`].
    Process(ProcessRecord),
}

/// The keys of records that changed. Nobody reads them in order: a hash map, whose hasher has a fixed seed, costs a fraction
/// of a tree of names.
#[derive(Debug, Clone, Default)]
pub(super) struct DirtyKeys {
    changes: HashMap<RecordKey, Change, foldhash::fast::FixedState>,
}

/// How a record changed since the keys were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// There was none before.
    Born,
    /// There may have been one.
    Touched,
}

impl DirtyKeys {
    /// It is, was, or may be another one than before.
    pub(super) fn touched(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Change::Touched);
    }

    /// It was made just now: there was none under this key.
    pub(super) fn born(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Change::Born);
    }

    /// It is no more. One that came since the keys were last taken leaves nothing behind, as most holds do.
    pub(super) fn gone(&mut self, key: RecordKey) {
        match self.changes.entry(key) {
            Entry::Occupied(found) if *found.get() == Change::Born => drop(found.remove_entry()),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => drop(free.insert(Change::Touched)),
        }
    }
}

/// Records that do not make a machine; the text names the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the records do not make a state: {0}")]
pub struct CorruptRecords(pub String);

impl Machine {
    /// Hands out the keys of all records touched since the last call, each once, in no order that means anything; of those
    /// that came and went since then, none. The room that they took is kept: filling it anew costs more than everything
    /// else about them.
    pub fn take_dirty(&mut self, mut fold: impl FnMut(&Self, RecordKey)) {
        self.history.carried_over();
        let mut dirty = std::mem::take(&mut self.dirty);
        for (key, _) in dirty.changes.drain() {
            fold(self, key);
        }
        self.dirty = dirty;
    }

    /// How many keys wait for [`take_dirty`](Self::take_dirty).
    #[must_use]
    pub fn dirty_records(&self) -> usize {
        self.dirty.changes.len()
    }

    /// The record as it is now; `None` when there is none (any more).
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<Record> {
        match key {
            RecordKey::Globals => Some(Record::Globals(self.globals.clone())),
            RecordKey::Semaphore(lock) => {
                let lock = self.locks.get(lock)?;
                lock.limit.map(|limit| Record::Semaphore { limit, kept: lock.limit_kept })
            }
            RecordKey::Session(id) => self.sessions.get(id).map(|session| Record::Session(session.record.clone())),
            RecordKey::Finished(id, number) => {
                self.sessions.get(id)?.finished.get(number).cloned().map(Record::Finished)
            }
            RecordKey::Tombstone(id) => self.tombstones.get(id).cloned().map(Record::Tombstone),
            RecordKey::Holder(lock, token) => {
                self.locks.get(lock)?.holders.get(token).map(|holder| Record::Holder(holder.as_ref().clone()))
            }
            RecordKey::Waiter(lock, sequence) => self.locks.get(lock)?.queue.get(sequence).cloned().map(Record::Waiter),
            RecordKey::Take(lock, take) => self.takes.get(&(lock.clone(), *take)).cloned().map(Record::Take),
            RecordKey::Node(id) => self.nodes.get(id).cloned().map(Record::Node),
            RecordKey::Document(lock) => self.documents.free.get(lock).cloned().map(Record::Document),
            RecordKey::Process(namespace, process) => {
                self.documents.pings.get(&(namespace.clone(), process.clone())).copied().map(Record::Process)
            }
            RecordKey::Delay(lock, token) => self.locks.get(lock)?.delays.get(token).cloned().map(Record::Delay),
            RecordKey::History(namespace, number) => {
                self.history.segment(namespace, *number).cloned().map(Record::History)
            }
        }
    }

    /// Every record, in key order within each kind.
    pub fn records(&self) -> impl Iterator<Item = (RecordKey, Record)> + '_ {
        self.record_keys().filter_map(|key| self.record(&key).map(|record| (key, record)))
    }

    /// The key of every record, in order within each kind.
    pub fn record_keys(&self) -> impl Iterator<Item = RecordKey> + '_ {
        let globals = std::iter::once(RecordKey::Globals);
        let semaphores = self.locks.iter().filter(|(_, lock)| lock.limit.is_some());
        let semaphores = semaphores.map(|(key, _)| RecordKey::Semaphore(key.clone()));
        let sessions = self.sessions.keys().map(|id| RecordKey::Session(*id));
        let finished = self
            .sessions
            .iter()
            .flat_map(|(id, session)| session.finished.keys().map(|number| RecordKey::Finished(*id, *number)));
        let tombstones = self.tombstones.keys().map(|id| RecordKey::Tombstone(*id));
        let holders = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.holders.keys().map(|token| RecordKey::Holder(key.clone(), *token)));
        let waiters = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.queue.keys().map(|sequence| RecordKey::Waiter(key.clone(), *sequence)));
        let delays = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.delays.keys().map(|token| RecordKey::Delay(key.clone(), *token)));
        let takes = self.takes.keys().map(|(lock, take)| RecordKey::Take(lock.clone(), *take));
        let nodes = self.nodes.keys().map(|id| RecordKey::Node(*id));
        let documents = self.documents.free.keys().map(|lock| RecordKey::Document(lock.clone()));
        let pings = self.documents.pings.keys();
        let processes = pings.map(|(namespace, process)| RecordKey::Process(namespace.clone(), process.clone()));
        globals
            .chain(semaphores)
            .chain(sessions)
            .chain(finished)
            .chain(tombstones)
            .chain(holders)
            .chain(waiters)
            .chain(takes)
            .chain(nodes)
            .chain(delays)
            .chain(self.history.keys())
            .chain(documents)
            .chain(processes)
    }

    /// The machine that these records describe, in whatever order they come. Everything derived is built anew;
    /// nothing is dirty. Refuses records that contradict each other.
    pub fn from_records(records: impl IntoIterator<Item = (RecordKey, Record)>) -> Result<Self, CorruptRecords> {
        let mut machine = Machine::new();
        let mut limits = Vec::new();
        let mut finished = Vec::new();
        let mut segments = BTreeMap::new();
        for (key, record) in records {
            match (key, record) {
                (RecordKey::Globals, Record::Globals(globals)) => machine.globals = globals,
                (RecordKey::Holder(..), Record::Holder(_)) if faults::on(Fault::ForgottenHolders) => {}
                (RecordKey::Semaphore(lock), Record::Semaphore { limit, kept }) => limits.push((lock, limit, kept)),
                (RecordKey::Session(id), Record::Session(record)) => {
                    machine.sessions.insert(id, Box::new(Session::new(record)));
                }
                (RecordKey::Finished(..), Record::Finished(_)) if faults::on(Fault::RequestMemoryLost) => {}
                (RecordKey::Finished(id, number), Record::Finished(done)) => finished.push((id, number, done)),
                (RecordKey::Tombstone(id), Record::Tombstone(tombstone)) => {
                    machine.tombstones.insert(id, tombstone);
                }
                (RecordKey::Holder(lock, token), Record::Holder(holder)) => {
                    machine.lock_of(&lock, &holder.request).holders.insert(token, Box::new(holder));
                }
                (RecordKey::Waiter(lock, sequence), Record::Waiter(waiter)) => {
                    machine.lock_of(&lock, &waiter.request).queue.restore(sequence, waiter);
                }
                (RecordKey::Delay(lock, token), Record::Delay(delayed)) => {
                    machine.lock_of(&lock, &delayed.holder.request).delays.insert(token, delayed);
                }
                (RecordKey::Take(lock, id), Record::Take(take)) => {
                    machine.takes.insert((lock, id), take);
                }
                (RecordKey::Node(id), Record::Node(told)) => {
                    machine.nodes.insert(id, told);
                }
                (RecordKey::History(namespace, number), Record::History(segment)) => {
                    segments.insert((namespace, number), segment);
                }
                (RecordKey::Document(lock), Record::Document(free)) => {
                    machine.documents.free.insert(lock, free);
                }
                (RecordKey::Process(namespace, process), Record::Process(record)) => {
                    machine.documents.pings.insert((namespace, process), record);
                }
                (key, _) => return Err(CorruptRecords(format!("{key:?} has another kind of content"))),
            }
        }
        for (lock, limit, kept) in limits {
            if !kept && !machine.locks.contains_key(&lock) {
                return Err(CorruptRecords(format!("semaphore {lock:?} has no holder and no waiter")));
            }
            let found = machine.lock_entry(&lock, Kind::Semaphore);
            found.limit = Some(limit);
            found.limit_kept = kept;
        }
        for (id, number, done) in finished {
            let Some(session) = machine.sessions.get_mut(&id) else {
                return Err(CorruptRecords(format!("finished request {id}#{number} has no session")));
            };
            session.finished.insert(number, done);
        }
        machine.history = History::restored(segments)?;
        if faults::on(Fault::TokensOfThisProcess) {
            machine.globals.tokens = 0;
        }
        if faults::on(Fault::LogTimeOfThisProcess) {
            machine.globals.now = crate::model::LogTime(0);
        }
        machine.derive()?;
        Ok(machine)
    }

    fn lock_of(&mut self, key: &LockKey, request: &Request) -> &mut Lock {
        self.lock_entry(key, state::kind_of(request.mode))
    }

    fn lock_entry(&mut self, key: &LockKey, kind: Kind) -> &mut Lock {
        self.locks.entry(key.clone()).or_insert_with(|| Box::new(Lock::new(kind, None)))
    }

    /// Builds everything that is derived from the records.
    fn derive(&mut self) -> Result<(), CorruptRecords> {
        let mut standings = Vec::new();
        for (key, lock) in &mut self.locks {
            for holder in lock.holders.values_mut() {
                let session = holder.request.claim.session().and_then(|id| self.sessions.get(&id));
                if let Some(shared) = session.and_then(|session| session.said_too(&holder.request.metadata)) {
                    holder.request.metadata = shared;
                }
            }
            for (token, holder) in &lock.holders {
                lock.permits_held += state::permits_of(holder.request.mode);
                let in_set = holder.in_set();
                standings.push((key.clone(), holder.request.claim, Standing::Holds(*token), in_set));
                for later in holder.extras.iter().flat_map(|extras| extras.again.iter().chain(&extras.upgrade)) {
                    let Some(session) = holder.request.claim.session() else { continue };
                    let claim = Claim::Request(RequestId { session, number: later.number });
                    standings.push((key.clone(), claim, Standing::Holds(*token), false));
                }
            }
            lock.permits_reserved =
                lock.delays.values().map(|delayed| state::permits_of(delayed.holder.request.mode)).sum();
            lock.queue.derive_index();
            for (sequence, waiter) in lock.queue.iter() {
                let in_set = waiter.purpose == Purpose::Set;
                standings.push((key.clone(), waiter.request.claim, Standing::Waits(*sequence), in_set));
            }
        }
        for (lock, claim, standing, in_set) in standings {
            match claim {
                Claim::Request(request) => {
                    let Some(session) = self.sessions.get_mut(&request.session) else {
                        return Err(CorruptRecords(format!("request {request} has no session")));
                    };
                    session.stand(request.number, &lock, standing, in_set);
                }
                Claim::Take(take) => {
                    let corrupt = |what| Err(CorruptRecords(format!("take {take:?} of {lock:?} {what}")));
                    if self.takes.contains_key(&(lock.clone(), take)) {
                        return corrupt("is live and finished");
                    }
                    let Some(found) = self.locks.get_mut(&lock) else { continue };
                    let Some(handle) = found.handle_at(standing) else { return corrupt("has no handle") };
                    if found.takes.insert(take, standing).is_some() || found.handles.insert(handle, take).is_some() {
                        return corrupt("is there twice");
                    }
                }
            }
        }
        self.owners = self.derived_owners();
        self.set_locks = self.derived_set_locks();
        self.sessions_with_several = self.derived_sessions_with_several();
        self.documents = self.derived_documents();
        self.due = self.derived_deadlines();
        self.usage = self.derived_usage();
        self.handles = self.derived_handles();
        self.totals = self.derived_totals();
        // Only the sweep's bound leaves something due in a state that was stored.
        self.swept_in_part = self.is_due();
        Ok(())
    }
}
