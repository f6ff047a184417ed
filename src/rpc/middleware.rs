//! A gRPC service with something around each of its calls.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

/// The answer of a service to a call.
pub(super) type Answer = Result<Response<Body>, Infallible>;

/// The future of an answer.
pub(super) type Answering = BoxFuture<Response<Body>, Infallible>;

/// What is done before and after each call.
pub(super) trait Middleware {
    /// Answers a call. `next` passes it to the service.
    fn call<F>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> Answering
    where
        F: Future<Output = Answer> + Send + 'static;
}

/// A gRPC service within a middleware.
#[derive(Clone)]
pub(super) struct Within<M, S> {
    pub(super) middleware: M,
    pub(super) service: S,
}

impl<M, S: NamedService> NamedService for Within<M, S> {
    const NAME: &'static str = S::NAME;
}

impl<M: Middleware, S> Service<Request<Body>> for Within<M, S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.middleware.call(request, |request| self.service.call(request))
    }
}
