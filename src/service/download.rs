//! A file that a node sends in pieces.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};

use super::ServiceError;

/// The pieces of a file, in order. Dropping it stops the sender. The end of the pieces does not prove that the file is
/// complete; the file's format does.
pub struct Download(BoxStream<'static, Result<Bytes, ServiceError>>);

impl Download {
    /// Creates a download from the pieces that the service sends. None may follow an error.
    pub fn new(pieces: impl Stream<Item = Result<Bytes, ServiceError>> + Send + 'static) -> Self {
        Self(pieces.boxed())
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The error that interrupted the transfer; no piece follows it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        self.0.next().await.transpose()
    }

    /// Returns the pieces that were not read yet.
    pub(crate) fn into_pieces(self) -> BoxStream<'static, Result<Bytes, ServiceError>> {
        self.0
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Download")
    }
}
