//! The `Documents` service: locks for callers that know a config server.

use tonic::{Request, Response};

use super::convert::{error_to_status, reply_to_answer};
use super::pb;
use super::unary::{Answers, refused};
use crate::service::{Call, LockService};

/// `Documents` over any service.
pub(super) struct Documents<S> {
    pub(super) service: S,
}

#[tonic::async_trait]
impl<S: LockService> pb::documents_server::Documents for Documents<S> {
    async fn change(&self, request: Request<pb::DocumentRequest>) -> Answers<pb::Reply> {
        let call = Call::try_from(request.into_inner()).map_err(refused)?;
        let reply = self.service.submit(call).await.map_err(|error| error_to_status(&error))?;
        reply_to_answer(&reply).map(Response::new)
    }
}
