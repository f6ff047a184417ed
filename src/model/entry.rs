//! What one position of the replicated log carries.

use serde::{Deserialize, Serialize};

use super::{Command, FencingToken, Handle, LockKey, LogTime, Principal, SessionId, WallTime, bounded};
use crate::limits::{COMMANDS_AN_ENTRY_MAX, RENEWALS_AN_ENTRY_MAX};

/// A stamp of log time, renewals in a lane of their own, and a batch of commands. Made by the leader's proposer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Log time of everything in it; never below the previous entry's.
    pub stamp: LogTime,
    /// The leader's wall clock, for people.
    pub wall: WallTime,
    /// Applied first, before anything that is due is ended; no more than [`RENEWALS_AN_ENTRY_MAX`].
    #[serde(deserialize_with = "bounded::list::<RENEWALS_AN_ENTRY_MAX, _, _>")]
    pub renewals: Vec<Renewal>,
    /// Applied last, in order; no more than [`COMMANDS_AN_ENTRY_MAX`].
    #[serde(deserialize_with = "bounded::list::<COMMANDS_AN_ENTRY_MAX, _, _>")]
    pub commands: Vec<Submission>,
    /// A digest of the state after an earlier entry on which most voters agree; a node that has another one stops.
    pub digest: Option<DigestClaim>,
}

/// One command and who asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// As the cluster checked it.
    pub principal: Principal,
    /// For sessionless commands: log time when the caller first sent it, or earlier. The machine executes none that is
    /// older than its memory of takes. `None` for all others.
    pub since: Option<LogTime>,
    /// What is asked.
    pub command: Command,
}

/// Prolongs a session or a lease. Never deduplicated: an old answer would overstate validity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// What.
    pub target: RenewalTarget,
    /// The client's own growing count, echoed, so that it can tell which attempt was answered. One that is lower than a
    /// count that was applied changes nothing, and is answered with the present end; 0 is not counted.
    pub attempt: u64,
    /// When the proposing leader received it, on its log clock.
    pub receipt: LogTime,
}

/// See [`Renewal`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenewalTarget {
    /// A session; the node checked the handle before it let the renewal into the log.
    Session(SessionId),
    /// A token lease.
    Lease {
        /// Which lock.
        lock: LockKey,
        /// Proof of the lease.
        handle: Handle,
        /// New length from the entry's stamp, in milliseconds.
        lease_ms: u64,
    },
    /// The lease of a session's hold; the node checked the session's handle before it let the renewal into the log.
    Hold {
        /// Which lock.
        lock: LockKey,
        /// Whose hold.
        session: SessionId,
        /// Which grant.
        token: FencingToken,
        /// New length from the entry's stamp, in milliseconds.
        lease_ms: u64,
    },
}

impl RenewalTarget {
    /// The session that is renewed, or whose hold is.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            RenewalTarget::Session(session) | RenewalTarget::Hold { session, .. } => Some(*session),
            RenewalTarget::Lease { .. } => None,
        }
    }
}

/// The digest of the state after the entry at `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestClaim {
    /// Log index of the first entry in a stretch of [`crate::limits::DIGEST_MS`] of log time.
    pub index: u64,
    /// Sum of the record hashes, see `codec`.
    pub digest: u128,
}
