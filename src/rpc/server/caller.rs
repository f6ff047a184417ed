//! The caller of a request.

use std::future::ready;

use tonic::body::Body;
use tonic::codegen::http::{self, Extensions, header};
use tonic::{Request, Status};

use crate::net::ConnectionInfo;
use crate::rpc::middleware::{Answer, Answering, Middleware};
use crate::service::{LockService, ServiceError, Source, who_calls};

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
        let (metadata, extensions) = (request.metadata(), request.extensions());
        if let Some(Recognized(service)) = extensions.get() {
            return Ok(S::clone(service));
        }
        Ok(self.recognize(metadata.get(header::AUTHORIZATION.as_str()).map(|shown| shown.as_bytes()), extensions)?)
    }

    fn recognize(&self, shown: Option<&[u8]>, extensions: &Extensions) -> Result<S, ServiceError> {
        let connection: Option<&ConnectionInfo> = extensions.get();
        let source = connection.map_or(Source::InProcess, |connection| Source::Connection(connection.id()));
        let from = connection.and_then(|connection| connection.from);
        self.0.for_caller(source, from, || who_calls(shown, connection))
    }
}

/// The service for the caller of a request that was recognized by its header.
#[derive(Clone)]
struct Recognized<S>(S);

/// Refuses an unknown caller, before its message arrives.
impl<S: LockService> Middleware for OfCallers<S> {
    fn call<F>(&self, mut request: http::Request<Body>, next: impl FnOnce(http::Request<Body>) -> F) -> Answering
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        if self.0.knows_callers() {
            let shown = request.headers().get(header::AUTHORIZATION).map(|shown| shown.as_bytes());
            match self.recognize(shown, request.extensions()) {
                Ok(service) => request.extensions_mut().insert(Recognized(service)),
                Err(refused) => return Box::pin(ready(Ok(Status::from(refused).into_http()))),
            };
        }
        Box::pin(next(request))
    }
}
