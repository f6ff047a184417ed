//! What a session does with its locks in addition to acquire and release.

use serde::{Deserialize, Serialize};

use super::{FencingToken, Handle, LockName, LockValue, Patience, RequestId};

/// A change of a session's hold. A repetition with the same number gets the first answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alter {
    /// The number of the request.
    pub request: RequestId,
    /// All requests of the session with smaller numbers have been answered and will not be repeated.
    pub answered_below: u64,
    /// The lock's name, in the session's namespace.
    pub name: LockName,
    /// The change to make.
    pub what: Alteration,
}

/// A change of a hold, see [`Alter`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alteration {
    /// From exclusive to shared, at once and under the same token. Does not change a shared hold.
    Downgrade {
        /// The token of the grant.
        token: FencingToken,
    },
    /// From shared to exclusive, under a new token, as soon as no other client holds the lock, and before all other
    /// waiters. A second upgrade of the same lock is refused, because each would wait for the other.
    Upgrade {
        /// The token of the grant.
        token: FencingToken,
        /// How long to wait for other readers. A try is refused at once if there is another reader.
        patience: Patience,
    },
    /// Acquires a lost hold again, under a new token, while its lock-delay keeps the name closed. Possible once for
    /// each lost hold, and not after a break.
    Resume {
        /// The token of the lost grant.
        token: FencingToken,
        /// Proves the session that lost the hold.
        handle: Handle,
        /// The hold also ends this long after its grant or last renewal, in milliseconds of log time.
        lease_ms: Option<u64>,
    },
    /// Changes the text of the hold.
    SetValue {
        /// The token of the grant.
        token: FencingToken,
        /// The new text. `None` removes it.
        value: Option<LockValue>,
    },
    /// Returns some permits of a hold, which keeps its token. If all permits are returned, the hold ends as with a
    /// release.
    ReturnPermits {
        /// The token of the grant.
        token: FencingToken,
        /// The number of permits: at least 1, and at most as many as the hold has.
        count: u32,
    },
}
