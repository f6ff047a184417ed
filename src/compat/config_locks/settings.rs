//! The settings of a manager, and its errors.

use std::time::Duration;

use super::observer::Era;
use crate::client::ClientError;
use crate::limits;
use crate::model::{EndReason, Invalid, LockName};
use crate::service::Advice;

/// Why a lock was not acquired or not found.
#[derive(Debug, thiserror::Error)]
pub enum ConfigLockError {
    /// Another process has the lock.
    #[error("the lock state was not changed: {0}")]
    LockStateChangeFailed(ClientError),
    /// There is no document with this name or `ts`.
    #[error("there is no such lock")]
    LockNotFound,
    /// The lock did not become free in time.
    #[error("{name} was not free within {waited:?}: {last}")]
    LockBusy {
        /// Name of the lock.
        name: LockName,
        /// How long the call waited.
        waited: Duration,
        /// The error of the last attempt.
        last: ClientError,
    },
    /// This `ts` has held the lock before and no longer does. A new acquisition needs a new `ts`.
    #[error("this acquisition is over: {0}")]
    Ended(EndReason),
    /// The difference between the service's time and this process's clock changes too fast to measure the take-over
    /// time; only with [`Era::Legacy`].
    #[error("the clocks differ by {skew:?} within a few readings, more than {limit:?}: no lock is taken")]
    ClockSkew {
        /// How much the difference changed.
        skew: Duration,
        /// The largest allowed change.
        limit: Duration,
    },
    /// The cluster refused for another reason, for example because the client has no right to the lock.
    #[error(transparent)]
    Refused(ClientError),
    /// The cluster did not answer, and the request may have been executed.
    #[error(transparent)]
    Unclear(ClientError),
}

/// Whether the error leaves open what the cluster did, or a retry may get another answer. A missing right does neither.
pub(super) fn is_unclear(error: &ClientError) -> bool {
    let ClientError::Service(error) = error else { return false };
    error.advice() != Advice::GiveUp || error.leaves_doubt()
}

impl From<ClientError> for ConfigLockError {
    fn from(error: ClientError) -> Self {
        match error {
            error @ ClientError::NotAcquired { .. } => ConfigLockError::LockStateChangeFailed(error),
            ClientError::HoldEnded { reason, .. } => ConfigLockError::Ended(reason),
            error @ ClientError::Service(_) if is_unclear(&error) => ConfigLockError::Unclear(error),
            error @ (ClientError::Service(_)
            | ClientError::Refused(_)
            | ClientError::SessionLost { .. }
            | ClientError::Invalid(_)) => ConfigLockError::Refused(error),
        }
    }
}

impl From<Invalid> for ConfigLockError {
    fn from(invalid: Invalid) -> Self {
        ConfigLockError::Refused(invalid.into())
    }
}

/// The time limits of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigSettings {
    /// Time between two pings; 30 s by default.
    pub ping_every: Duration,
    /// A lock is taken over after this time without a change of its process's ping; 15 minutes by default.
    pub takeover: Duration,
    /// Longest time between two attempts of [`lock`](super::ConfigLocks::lock); 500 ms by default.
    pub retry_every: Duration,
    /// The MongoDB releases whose rules the manager follows.
    pub era: Era,
    /// The election term of new documents, if any.
    pub term: Option<u64>,
}

impl ConfigSettings {
    /// The settings of the manager in the 2.x releases; see [`Era::Legacy`].
    #[must_use]
    pub fn legacy() -> Self {
        Self { era: Era::Legacy, ..Self::default() }
    }
}

impl Default for ConfigSettings {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_millis(limits::CONFIG_PING_MS),
            takeover: Duration::from_millis(limits::CONFIG_TAKEOVER_MS),
            retry_every: Duration::from_millis(limits::CONFIG_RETRY_MS),
            era: Era::ReplicaSet,
            term: None,
        }
    }
}

/// How long [`lock`](super::ConfigLocks::lock) waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Make one attempt.
    SingleAttempt,
    /// Wait for at most this duration.
    Duration(Duration),
    /// Wait without a limit.
    Forever,
}

impl WaitFor {
    /// Converts the original's milliseconds: 0 is one attempt, a negative number means no limit.
    #[must_use]
    pub fn from_millis(ms: i64) -> Self {
        match u64::try_from(ms) {
            Ok(0) => WaitFor::SingleAttempt,
            Ok(ms) => WaitFor::Duration(Duration::from_millis(ms)),
            Err(_) => WaitFor::Forever,
        }
    }
}

impl Default for WaitFor {
    /// The default wait is 20 s.
    fn default() -> Self {
        WaitFor::Duration(Duration::from_millis(limits::CONFIG_WAIT_MS))
    }
}
