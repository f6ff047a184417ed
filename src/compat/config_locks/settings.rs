//! How patient a manager is, and what it answers where it has no lock to give.

use std::time::Duration;

use super::observer::Era;
use crate::client::ClientError;
use crate::limits;
use crate::model::{EndReason, Invalid, LockName};

/// Why a lock was not got, or not found.
#[derive(Debug, thiserror::Error)]
pub enum ConfigLockError {
    /// Somebody else has it, or was faster.
    #[error("the lock state was not changed: {0}")]
    LockStateChangeFailed(ClientError),
    /// No document of that name or `ts`.
    #[error("there is no such lock")]
    LockNotFound,
    /// It did not become free in time.
    #[error("{name} was not free within {waited:?}: {last}")]
    LockBusy {
        /// Which lock.
        name: LockName,
        /// How long was waited.
        waited: Duration,
        /// What the last try met.
        last: ClientError,
    },
    /// This `ts` has held it before and does so no longer: draw a new one.
    #[error("this acquisition is over: {0}")]
    Ended(EndReason),
    /// The service's time and the own clock part too fast for a patience that is counted by them; only with
    /// [`Era::Legacy`].
    #[error("the clocks differ by {skew:?} within a few readings, more than {limit:?}: nothing is taken")]
    ClockSkew {
        /// By how much.
        skew: Duration,
        /// What would be borne.
        limit: Duration,
    },
    /// The cluster refused for another reason.
    #[error(transparent)]
    Refused(ClientError),
    /// The cluster did not answer; whether something happened may be unknown.
    #[error(transparent)]
    Unclear(ClientError),
}

impl From<ClientError> for ConfigLockError {
    fn from(error: ClientError) -> Self {
        match error {
            error @ ClientError::NotAcquired { .. } => ConfigLockError::LockStateChangeFailed(error),
            ClientError::HoldEnded { reason, .. } => ConfigLockError::Ended(reason),
            error @ ClientError::Service(_) => ConfigLockError::Unclear(error),
            error @ (ClientError::Refused(_) | ClientError::SessionLost { .. } | ClientError::Invalid(_)) => {
                ConfigLockError::Refused(error)
            }
        }
    }
}

impl From<Invalid> for ConfigLockError {
    fn from(invalid: Invalid) -> Self {
        ConfigLockError::Refused(invalid.into())
    }
}

/// How patient a manager is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigSettings {
    /// Between two pings; 30 s.
    pub ping_every: Duration,
    /// A lock is overtaken after so long without a change of its process' ping; 15 minutes.
    pub takeover: Duration,
    /// Between two tries of [`lock`](super::ConfigLocks::lock) at most; 500 ms.
    pub retry_every: Duration,
    /// Whose rules it keeps.
    pub era: Era,
    /// The election term that new documents carry.
    pub term: Option<u64>,
}

impl ConfigSettings {
    /// As the manager of the 2.x releases: see [`Era::Legacy`].
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
    /// One try.
    SingleAttempt,
    /// At most so long.
    Duration(Duration),
    /// Without a limit.
    Forever,
}

impl WaitFor {
    /// As the original's callers say it: 0 is one try, less is no limit.
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
    /// 20 s.
    fn default() -> Self {
        WaitFor::Duration(Duration::from_millis(limits::CONFIG_WAIT_MS))
    }
}
