//! The records of the state. They are mirrored on disk, sent in snapshots and hashed into the state's digest.

use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};

use super::documents::{FreeDocument, ProcessRecord};
use super::globals::Globals;
use super::holder::{Delayed, Holder};
use super::owners::Lookup;
use super::session::{Finished, FinishedLease, SessionRecord, Tombstone};
use super::waiters::Waiter;
use crate::history::Segment;
use crate::model::{Announcement, FencingToken, LeaseRequestId, LockKey, Namespace, ProcessId, SessionId};

/// The key of a record. The order of the variants is the order of the keys on disk, so new ones are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecordKey {
    /// Counters, log time and settings.
    Globals,
    /// A semaphore's limit. Other locks are defined by their holders and waiters alone.
    Semaphore(LockKey),
    /// One live session.
    Session(SessionId),
    /// A finished request of a session, remembered until its client confirms that it received the answer.
    Finished(SessionId, u64),
    /// An ended session.
    Tombstone(SessionId),
    /// One holder, by its token.
    Holder(LockKey, FencingToken),
    /// One waiter, by its sequence number.
    Waiter(LockKey, u64),
    /// A finished take without a session.
    FinishedLease(LockKey, LeaseRequestId),
    /// The announcement of a node.
    Node(u64),
    /// An ended hold that keeps its name closed, by its token.
    Delay(LockKey, FencingToken),
    /// A segment of a namespace's history, by its number.
    History(Namespace, u64),
    /// The document of a lock without a holder.
    Document(LockKey),
    /// A process that gave signs of life.
    Process(Namespace, ProcessId),
}

/// The content of a record. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Content of [`RecordKey::Globals`].
    Globals(Globals),
    /// Content of [`RecordKey::Semaphore`].
    Semaphore {
        /// The number of permits.
        limit: u32,
        /// Whether the limit was set explicitly and stays.
        kept: bool,
    },
    /// Content of [`RecordKey::Session`].
    Session(SessionRecord),
    /// Content of [`RecordKey::Finished`].
    Finished(Finished),
    /// Content of [`RecordKey::Tombstone`].
    Tombstone(Tombstone),
    /// Content of [`RecordKey::Holder`].
    Holder(Holder),
    /// Content of [`RecordKey::Waiter`].
    Waiter(Waiter),
    /// Content of [`RecordKey::FinishedLease`].
    FinishedLease(FinishedLease),
    /// Content of [`RecordKey::Node`].
    Node(Announcement),
    /// Content of [`RecordKey::Delay`].
    Delay(Delayed),
    /// Content of [`RecordKey::History`].
    History(Segment),
    /// Content of [`RecordKey::Document`].
    Document(FreeDocument),
    /// Content of [`RecordKey::Process`].
    Process(ProcessRecord),
}

/// The keys of records that changed. They are in a hash map, because they are never read in order, and a hasher with a
/// fixed seed costs a fraction of a tree of names.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirtyKeys {
    changes: Lookup<RecordKey, Dirty>,
}

/// How a record changed since the keys were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dirty {
    /// There was no record under this key before.
    Born,
    /// There may have been a record under this key.
    Touched,
}

impl DirtyKeys {
    /// The record was changed, added or removed.
    pub(crate) fn touched(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Dirty::Touched);
    }

    /// The record was added. There was none under this key before.
    pub(crate) fn born(&mut self, key: RecordKey) {
        self.changes.entry(key).or_insert(Dirty::Born);
    }

    /// The record was removed. If it was also added since the keys were last taken, as most holds are, no key remains.
    pub(crate) fn gone(&mut self, key: RecordKey) {
        match self.changes.entry(key) {
            Entry::Occupied(found) if *found.get() == Dirty::Born => drop(found.remove_entry()),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => drop(free.insert(Dirty::Touched)),
        }
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Removes all keys and returns them in an unspecified order. The map keeps its memory, because allocating it again
    /// costs more than the rest.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = RecordKey> + '_ {
        self.changes.drain().map(|(key, _)| key)
    }
}
