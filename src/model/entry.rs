//! The content of one position of the replicated log.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Command, FencingToken, Handle, LockKey, LogTime, Principal, SessionId, WallTime};
use crate::limits::{COMMANDS_AN_ENTRY_MAX, RENEWALS_AN_ENTRY_MAX};

/// A stamp of log time, renewals, and a batch of commands. The leader's proposer makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Log time of everything in the entry. Never below the previous entry's.
    pub stamp: LogTime,
    /// The leader's wall clock, for display only.
    pub wall: WallTime,
    /// Renewals, which are applied before anything that is due ends. At most [`RENEWALS_AN_ENTRY_MAX`].
    #[serde(deserialize_with = "list::<RENEWALS_AN_ENTRY_MAX, _, _>")]
    pub renewals: Vec<Renewal>,
    /// Commands, which are applied last, in order. At most [`COMMANDS_AN_ENTRY_MAX`].
    #[serde(deserialize_with = "list::<COMMANDS_AN_ENTRY_MAX, _, _>")]
    pub commands: Vec<Submission>,
    /// A digest of the state after an earlier entry, on which most voters agree. A node with another digest stops.
    pub digest: Option<DigestClaim>,
}

/// One command and the identity of its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The caller's identity, as the cluster checked it.
    pub principal: Principal,
    /// For a sessionless command: the log time when the caller first sent it, or earlier. The machine refuses a command
    /// that is older than its memory of takes. `None` for all other commands.
    pub since: Option<LogTime>,
    /// The command to apply.
    pub command: Command,
}

/// Prolongs a session or a lease. A repeated renewal is applied again: the answer to the first copy, repeated later,
/// would overstate how long the session is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The session or lease to renew.
    pub target: RenewalTarget,
    /// The client's count of its renewals, repeated in the answer, so that the client knows which attempt was answered.
    /// A count below one that was applied changes nothing; its answer is the current deadline. 0 means that the client
    /// does not count.
    pub attempt: u64,
    /// When the proposing leader received the renewal, on its log clock.
    pub receipt: LogTime,
}

/// What a [`Renewal`] prolongs. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenewalTarget {
    /// A session. The node checked the handle before it accepted the renewal into the log.
    Session(SessionId),
    /// A token lease.
    Lease {
        /// The lock's full name.
        lock: LockKey,
        /// Proves the lease.
        handle: Handle,
        /// The new length in milliseconds, from the entry's stamp.
        lease_ms: u64,
    },
    /// The lease of a session's hold. The node checked the session's handle before it accepted the renewal into the
    /// log.
    Hold {
        /// The lock's full name.
        lock: LockKey,
        /// The session that holds the lock.
        session: SessionId,
        /// The token of the grant.
        token: FencingToken,
        /// The new length in milliseconds, from the entry's stamp.
        lease_ms: u64,
    },
}

impl RenewalTarget {
    /// The session that is renewed, or whose hold is renewed.
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
    /// Log index of the first entry in an interval of [`crate::limits::DIGEST_MS`] of log time.
    pub index: u64,
    /// Sum of the record hashes, see the module `codec`.
    pub digest: u128,
}

/// Reads a list whose length is checked while it is decoded, so that hostile bytes cannot take much memory.
struct AtMost<const MOST: usize, T>(PhantomData<T>);

/// For `deserialize_with`: returns an error for a list of more than `MOST` elements.
fn list<'de, const MOST: usize, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Vec<T>, D::Error> {
    reader.deserialize_seq(AtMost::<MOST, T>(PhantomData))
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<MOST, T> {
    type Value = Vec<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            if read.len() == MOST {
                return Err(A::Error::custom(format!("a list of more than {MOST} elements")));
            }
            read.push(element);
        }
        Ok(read)
    }
}
