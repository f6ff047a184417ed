//! One record of the state: what is mirrored on disk, sent in snapshots and hashed into the state's digest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};

use super::documents::{FreeDocument, ProcessRecord};
use super::globals::Globals;
use super::holder::{Delayed, Holder};
use super::session::{Finished, FinishedLease, SessionRecord, Tombstone};
use super::waiters::Waiter;
use crate::history::Segment;
use crate::model::{Announcement, FencingToken, LeaseRequestId, LockKey, Namespace, ProcessId, SessionId};

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
    FinishedLease(LockKey, LeaseRequestId),
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
    /// See [`RecordKey::FinishedLease`].
    FinishedLease(FinishedLease),
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
pub(crate) struct DirtyKeys {
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
    pub(crate) fn touched(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Change::Touched);
    }

    /// It was made just now: there was none under this key.
    pub(crate) fn born(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Change::Born);
    }

    /// It is no more. One that came since the keys were last taken leaves nothing behind, as most holds do.
    pub(crate) fn gone(&mut self, key: RecordKey) {
        match self.changes.entry(key) {
            Entry::Occupied(found) if *found.get() == Change::Born => drop(found.remove_entry()),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => drop(free.insert(Change::Touched)),
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Takes all keys out, in no order that means anything. The memory is kept: filling it again costs more than all else.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = RecordKey> + '_ {
        self.changes.drain().map(|(key, _)| key)
    }
}
