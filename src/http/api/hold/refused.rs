//! The error of a `hold` that is refused before its first event.

use super::Hold;
use crate::client::ClientError;
use crate::http::api::problem::{Decided, Failed};
use crate::model::Query;
use crate::service::{LockService, ServiceError};

impl<S: LockService> Hold<S> {
    /// Answers the caller with this error.
    pub(super) fn refuse(self, failed: Failed) {
        // The caller may be gone.
        self.refusal.and_then(|refusal| refusal.send(failed).err());
    }

    /// Makes an error of the client the answer to the caller.
    pub(super) async fn checked<T>(&self, result: Result<T, ClientError>) -> Result<T, Failed> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// The answer to the caller for an error of the client.
    pub(super) async fn failed(&self, error: ClientError) -> Failed {
        let at = match &error {
            ClientError::Service(_) | ClientError::Invalid(_) => Decided::default(),
            ClientError::NotAcquired { .. }
            | ClientError::Refused(_)
            | ClientError::SessionLost { .. }
            | ClientError::HoldEnded { .. } => self.decided().await,
        };
        if let ClientError::NotAcquired { lock, holder: None, closed: None } = &error
            && self.waits
        {
            // This copy had no place: an earlier one had the whole wait, and the lock may be free now.
            return Failed::WaitOver { lock: lock.to_string(), decided: at };
        }
        Failed::of_client(error, &self.context.namespace, at)
    }

    /// The point of the log up to which the cluster has decided. The client does not report the point of one answer.
    async fn decided(&self) -> Decided {
        tokio::select! {
            biased;
            _ = self.context.stopped() => Decided::default(),
            read = self.context.query(Query::Totals, None) => {
                read.map_or_else(|_| Decided::default(), |read| Decided::at(read.index, read.now))
            }
        }
    }

    /// The error of a hold that the node leaves without an answer when it stops. The lock may have been granted.
    pub(super) fn unanswered() -> Failed {
        ServiceError::unknown("the node stopped before the hold was answered").into()
    }
}
