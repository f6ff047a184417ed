//! A file on its way from a node.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::ServiceError;

/// The pieces of a file, in order. Dropping it ends the sending. It says nothing about being complete: the file's own
/// format does.
#[derive(Debug)]
pub struct Download {
    receiver: mpsc::Receiver<Result<Bytes, ServiceError>>,
}

impl Download {
    /// From the channel that its service feeds.
    #[must_use]
    pub fn new(receiver: mpsc::Receiver<Result<Bytes, ServiceError>>) -> Self {
        Self { receiver }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Whatever cut it off; nothing comes after.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        self.receiver.recv().await.transpose()
    }
}
