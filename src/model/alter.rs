//! What a session does with its locks besides acquire and release.

use serde::{Deserialize, Serialize};

use super::{FencingToken, Handle, LockName, LockValue, Patience, RequestId};

/// A session changes a hold. Repeated with the same number, the first answer counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alter {
    /// Repeat it with the same number: the first answer counts.
    pub request: RequestId,
    /// As in [`Acquire`](super::Acquire).
    pub answered_below: u64,
    /// Which lock, in the session's namespace.
    pub name: LockName,
    /// How.
    pub what: Alteration,
}

/// See [`Alter`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alteration {
    /// From exclusive to shared, at once and under the same token. A shared hold stays as it is.
    Downgrade {
        /// Which grant.
        token: FencingToken,
    },
    /// From shared to exclusive, under a new token, as soon as nobody else holds the lock; ahead of the whole queue.
    /// There is one upgrader at most: a second one is refused, or both would wait for ever.
    Upgrade {
        /// Which grant.
        token: FencingToken,
        /// How long to wait for other readers; a try is refused at once where there are any.
        patience: Patience,
    },
    /// Takes up a hold that was lost, under a new token, while its lock-delay keeps the name closed. Once, and not after
    /// a break.
    Resume {
        /// The lost grant.
        token: FencingToken,
        /// Proof of the session that lost it.
        handle: Handle,
        /// The hold also ends this long after its grant or last renewal, in milliseconds of log time.
        lease_ms: Option<u64>,
    },
    /// Changes the text that is kept with the hold.
    SetValue {
        /// Which grant.
        token: FencingToken,
        /// The new one; `None` takes it away.
        value: Option<LockValue>,
    },
    /// Gives back some permits of a hold, which keeps its token; with all of them the hold ends, as with a release.
    ReturnPermits {
        /// Which grant.
        token: FencingToken,
        /// How many: at least 1, and at most as many as it holds.
        count: u32,
    },
}
