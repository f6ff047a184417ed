//! The bounds on the size of the state, as one value. Every build has the same bounds; a test may use smaller ones.

use super::{QuotaKind, Refusal};
use crate::limits;

/// The bounds of the state. Each is a number of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quotas {
    /// Sessions and tombstones of a namespace.
    pub(crate) sessions: u64,
    /// Locks in use in a namespace.
    pub(crate) locks: u64,
    /// Takes of a namespace, live and remembered.
    pub(crate) takes: u64,
    /// Waiters of a namespace.
    pub(crate) waiters: u64,
    /// Waiters of one lock.
    pub(crate) waiters_of_lock: u64,
    /// Holders of one lock.
    pub(crate) holders_of_lock: u64,
    /// Locks that one session holds or waits for.
    pub(crate) locks_of_session: u64,
    /// How many times an owner may acquire one hold.
    pub(crate) depth_of_hold: u64,
    /// Documents of free locks of a namespace. Above this number the machine removes the oldest documents; it refuses
    /// nothing, so no [`QuotaKind`] stands for this bound.
    pub(crate) documents: u64,
    /// Processes of a namespace.
    pub(crate) processes: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            sessions: limits::SESSIONS_A_NAMESPACE_MAX as u64,
            locks: limits::LOCKS_A_NAMESPACE_MAX as u64,
            takes: limits::TAKES_A_NAMESPACE_MAX as u64,
            waiters: limits::WAITERS_A_NAMESPACE_MAX as u64,
            waiters_of_lock: limits::WAITERS_A_LOCK_MAX as u64,
            holders_of_lock: limits::HOLDERS_A_LOCK_MAX as u64,
            locks_of_session: limits::LOCKS_A_SESSION_MAX as u64,
            depth_of_hold: limits::HOLD_DEPTH_MAX as u64,
            documents: limits::DOCUMENTS_A_NAMESPACE_MAX as u64,
            processes: limits::PROCESSES_A_NAMESPACE_MAX as u64,
        }
    }
}

impl Quotas {
    /// Returns a refusal if `used` records exist and the bound does not allow one more.
    pub(crate) fn one_more(&self, what: QuotaKind, used: u64) -> Result<(), Refusal> {
        let limit = match what {
            QuotaKind::Sessions => self.sessions,
            QuotaKind::Locks => self.locks,
            QuotaKind::Takes => self.takes,
            QuotaKind::Waiters => self.waiters,
            QuotaKind::WaitersOfLock => self.waiters_of_lock,
            QuotaKind::HoldersOfLock => self.holders_of_lock,
            QuotaKind::LocksOfSession => self.locks_of_session,
            QuotaKind::DepthOfHold => self.depth_of_hold,
            QuotaKind::Processes => self.processes,
            // These two are not fields, so tests have the same bounds.
            QuotaKind::LocksOfSet => limits::LOCKS_A_SET_MAX as u64,
            QuotaKind::UnlocksOfMany => limits::UNLOCKS_OF_MANY_MAX as u64,
        };
        if used < limit { Ok(()) } else { Err(Refusal::Quota { what, limit }) }
    }
}
