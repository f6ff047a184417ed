//! What the indexes are about: deadlines, and the two ways in which an index changes.

use std::collections::BTreeSet;

use crate::model::{FencingToken, LeaseRequestId, LockKey, Namespace, ProcessId, SessionId};

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

    pub(super) fn count(self, number: &mut u64) {
        match self {
            Self::Came => *number += 1,
            Self::Went => *number -= 1,
        }
    }
}

/// What ends at a deadline. A token names a hold of the lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeadlineOf {
    /// A session. Its holds and waits end with it.
    Session(SessionId),
    /// A hold with a separate lease.
    Lease(LockKey, FencingToken),
    /// A wait, by its sequence number in the queue of the lock.
    Wait(LockKey, u64),
    /// The lock-delay after a hold has ended.
    Delay(LockKey, FencingToken),
    /// The record of an ended session.
    Tombstone(SessionId),
    /// The record of a finished request for a lease.
    FinishedLease(LockKey, LeaseRequestId),
    /// The record of a process that has sent no ping for days.
    Process(Namespace, ProcessId),
    /// The time without grants after a restore.
    Opening,
    /// The pause between two parts of a command that frees many documents.
    Unlocking,
    /// The longest time of a hold, which renewals do not extend.
    AtMost(LockKey, FencingToken),
}
