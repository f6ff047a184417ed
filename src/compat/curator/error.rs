//! The errors of Curator's locks.

use crate::client::ClientError;
use crate::model::Invalid;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CuratorError {
    /// The calling task does not hold the lock (`IllegalMonitorStateException`). Nothing was changed.
    #[error("you do not own the lock: {path}")]
    IllegalMonitorState {
        /// Path of the lock.
        path: String,
    },
    /// The call does not fit the state of the lock (`IllegalStateException`). Nothing was changed.
    #[error("{path}: {why}")]
    IllegalState {
        /// Path of the lock.
        path: String,
        /// Why the call does not fit.
        why: &'static str,
    },
    /// The session was lost, the cluster did not answer, or it refused the request. The [`advice`](ClientError::advice)
    /// distinguishes these.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl From<Invalid> for CuratorError {
    fn from(invalid: Invalid) -> Self {
        CuratorError::Client(invalid.into())
    }
}

/// Converts the error of a wait that ended without the lock to `None`.
pub(super) fn in_time<T>(acquired: Result<T, CuratorError>) -> Result<Option<T>, CuratorError> {
    match acquired {
        Ok(acquired) => Ok(Some(acquired)),
        Err(CuratorError::Client(ClientError::NotAcquired { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}
