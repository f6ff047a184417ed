//! The state as records: what is mirrored on disk, sent in snapshots and hashed into the state's digest.

use serde::{Deserialize, Serialize};

use crate::model::{LockKey, SessionId, TakeId};

/// Names one record. The order of the variants is the order of the keys on disk; new ones are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecordKey {
    /// Counters, log time and settings.
    Globals,
    /// One lock in use and its holders.
    Lock(LockKey),
    /// One waiter, by its place in the queue.
    Waiter(LockKey, u64),
    /// One live session.
    Session(SessionId),
    /// A finished request of a session, remembered until its client says that it was answered.
    Finished(SessionId, u64),
    /// An ended session.
    Tombstone(SessionId),
    /// The outcome of a sessionless take.
    Take(LockKey, TakeId),
}
