//! The caller of a request.

use tonic::{Request, Status};

use crate::net::ConnectionInfo;
use crate::service::{LockService, Source, who_calls};

/// The service behind a port. It answers only the caller of a request, so that a new call cannot be served before its
/// caller is recognized.
#[derive(Clone)]
pub(in crate::rpc) struct OfCallers<S>(S);

impl<S: LockService> OfCallers<S> {
    pub(in crate::rpc) fn new(service: S) -> Self {
        Self(service)
    }

    /// Returns a handle on the service for the caller of a request. Its source is its connection.
    #[allow(clippy::result_large_err)] // The error type of tonic's handlers.
    pub(in crate::rpc) fn of<T>(&self, request: &Request<T>) -> Result<S, Status> {
        let connection: Option<&ConnectionInfo> = request.extensions().get();
        let source = connection.map_or(Source::InProcess, |connection| Source::Connection(connection.id()));
        let shown = || {
            let header = request.metadata().get("authorization").map(|header| header.as_bytes());
            who_calls(header, connection)
        };
        Ok(self.0.for_caller(source, connection.and_then(|connection| connection.from), shown)?)
    }
}
