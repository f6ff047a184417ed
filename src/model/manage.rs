//! What is done to a lock from outside: by an operator, whoever holds it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FencingToken, HolderView, Invalid, LockKey, LogTime, SessionId, WaiterView, text};
use crate::limits;

/// Something done to a lock without being its holder. It names the grant that it means, or says how things should be, so
/// that a repetition changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manage {
    /// Which lock.
    pub lock: LockKey,
    /// What.
    pub what: Managing,
}

/// See [`Manage`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Managing {
    /// Keeps a semaphore of so many permits, also while nobody uses it; changes the limit of one that is there. More
    /// permits are granted at once; fewer evict nobody, but refuse those that wait for more than there will ever be.
    SetLimit {
        /// How many permits there are.
        limit: u32,
    },
    /// Forgets a semaphore's limit once nobody uses it.
    RemoveLimit,
    /// Ends a hold against its holder's will, without lock-delay; or the lock-delay of a lost one.
    BreakHold {
        /// Which grant; another one than the present changes nothing.
        token: FencingToken,
        /// What for; shown to everybody.
        why: Reason,
    },
    /// Asks a holder to give up its hold: an event, nothing else.
    Ask {
        /// Which grant.
        token: FencingToken,
        /// What for; shown to everybody.
        why: Reason,
    },
    /// Makes another session the holder, under a new token and without a gap: one that waits for this lock, or that said
    /// that it accepts.
    HandOver {
        /// Which grant.
        token: FencingToken,
        /// To whom.
        to: SessionId,
    },
}

/// Why somebody acts on others' locks: 1 to 512 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reason(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Reason {
    /// Refuses what is empty, longer than 512 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || limits::REASON_BYTES_MAX < text.len() || text.chars().any(char::is_control) {
            let bound = format!("1 to {} bytes, no control characters", limits::REASON_BYTES_MAX);
            return Err(Invalid::new("why", bound, format!("{} bytes: {text:?}", text.len())));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a break did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakReport {
    /// It was done; otherwise this is what would happen.
    pub done: bool,
    /// Whose hold; as it was, where only its lock-delay is left.
    pub holder: HolderView,
    /// When its session last gave a sign of life; `None` where there is no session any more, or never was.
    pub last_seen: Option<LogTime>,
    /// Who stands first in the queue.
    pub next: Option<WaiterView>,
}
