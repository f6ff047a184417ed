//! What ends at a deadline.

use crate::model::{FencingToken, LeaseRequestId, LockKey, Namespace, ProcessId, SessionId};

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
