//! The index entries of everything that ends at a deadline.

use crate::model::{FencingToken, LeaseRequestId, LockKey, Namespace, ProcessId, SessionId};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeadlineOf {
    /// A session, with everything that it holds or waits for.
    Session(SessionId),
    Lease(LockKey, FencingToken),
    Wait(LockKey, u64),
    /// The time for which an ended hold keeps its name closed.
    Delay(LockKey, FencingToken),
    Tombstone(SessionId),
    /// The record of a finished take.
    FinishedLease(LockKey, LeaseRequestId),
    Process(Namespace, ProcessId),
    /// The time without grants after a restore.
    Opening,
    /// The next part of a command that frees many documents.
    Unlocking,
    /// The at-most time of a hold.
    AtMost(LockKey, FencingToken),
}
