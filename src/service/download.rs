//! A file that a node sends in pieces.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::ServiceError;

/// The pieces of a file, in order. Dropping it stops the sender. The end of the pieces does not prove that the file is
/// complete; the file's format does.
#[derive(Debug)]
pub struct Download {
    receiver: mpsc::Receiver<Result<Bytes, ServiceError>>,
}

impl Download {
    /// Creates a download from the channel that the service feeds.
    #[must_use]
    pub fn new(receiver: mpsc::Receiver<Result<Bytes, ServiceError>>) -> Self {
        Self { receiver }
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The error that interrupted the transfer; no piece follows it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        self.receiver.recv().await.transpose()
    }
}
