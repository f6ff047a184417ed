//! Actions on a lock by a client or operator that need not hold it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FencingToken, HolderView, Invalid, LockKey, LogTime, SessionId, WaiterView, text};
use crate::limits;

/// An action on a lock by a caller that need not hold it. It names the grant or the new state, so that a repetition
/// changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manage {
    /// The lock's full name.
    pub lock: LockKey,
    /// The action to take.
    pub what: Managing,
}

/// An action of [`Manage`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Managing {
    /// Sets the limit of a semaphore, and keeps the limit while the semaphore is unused. After a raise, waiters are
    /// granted at once. A lower limit ends no hold, but refuses the waiters that want more permits than it.
    SetLimit {
        /// The number of permits.
        limit: u32,
    },
    /// Removes a semaphore's limit once the semaphore is unused.
    RemoveLimit,
    /// Ends a hold without its holder's request and without lock-delay. For a hold that has ended, opens what it keeps
    /// closed; history has no record of that.
    BreakHold {
        /// The token of the grant. A token that is not current changes nothing.
        token: FencingToken,
        /// The caller's reason, which every client may see.
        why: Reason,
    },
    /// Asks a holder to give up its hold. Only emits an event.
    Ask {
        /// The token of the grant.
        token: FencingToken,
        /// The caller's reason, which every client may see.
        why: Reason,
    },
    /// Makes another session the holder, under a new token and without a gap. The session must wait for this lock or
    /// accept hand-overs.
    HandOver {
        /// The token of the grant.
        token: FencingToken,
        /// The session that gets the hold.
        to: SessionId,
    },
}

/// Why a caller acts on the locks of other clients: 1 to 512 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reason(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Reason {
    /// Refuses a text that is empty, longer than 512 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        text::bounded("why", text, limits::REASON_BYTES_MAX).map(Self)
    }

    /// Returns the reason as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The report of a break that was done or would be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakReport {
    /// Whether the break was done. If not, the report is what would happen.
    pub done: bool,
    /// The holder, or the former one if only its lock-delay is left.
    pub holder: HolderView,
    /// When the holder's session was last renewed. `None` without a session.
    pub last_seen: Option<LogTime>,
    /// The first waiter of the queue, if the break lets it hold the lock. `None` if no client waits, or if the first
    /// waiter also waits for other holders, for other locks of its set, or for the end of the closed time after a
    /// restore.
    pub next: Option<WaiterView>,
}
