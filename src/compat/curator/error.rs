//! What can go wrong with a lock of Curator's kind.

use crate::client::ClientError;
use crate::model::Invalid;

/// Why a call did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CuratorError {
    /// The calling task does not hold the lock (`IllegalMonitorStateException`). Nothing was changed.
    #[error("you do not own the lock: {path}")]
    IllegalMonitorState {
        /// Which.
        path: String,
    },
    /// The call does not fit the state of the lock (`IllegalStateException`). Nothing was changed.
    #[error("{path}: {why}")]
    IllegalState {
        /// Which.
        path: String,
        /// What does not fit.
        why: &'static str,
    },
    /// The session was lost, the cluster did not answer, or it refused: three errors of the client, to be told apart by
    /// its [`advice`](ClientError::advice).
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl From<Invalid> for CuratorError {
    fn from(invalid: Invalid) -> Self {
        CuratorError::Client(invalid.into())
    }
}

/// Whether a wait with an end got what it waited for.
pub(super) fn in_time<T>(acquired: Result<T, CuratorError>) -> Result<Option<T>, CuratorError> {
    match acquired {
        Ok(acquired) => Ok(Some(acquired)),
        Err(CuratorError::Client(ClientError::NotAcquired { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}
