//! The `Documents` service: locks for callers that know a config server.

use tonic::{Request, Response};

use super::convert::{error_to_status, namespace, reply_to_answer};
use super::pb;
use super::unary::{Answers, ask, refused};
use crate::service::{Call, LockService};

/// `Documents` over any service.
pub(super) struct Documents<S> {
    pub(super) service: S,
}

#[tonic::async_trait]
impl<S: LockService> pb::documents_server::Documents for Documents<S> {
    async fn change(&self, request: Request<pb::DocumentRequest>) -> Answers<pb::Reply> {
        let asked = request.into_inner();
        let namespace = namespace(&asked.namespace).map_err(refused)?;
        let call = Call::try_from(asked).map_err(refused)?;
        let reply = self.service.submit(call).await.map_err(|error| error_to_status(&error))?;
        reply_to_answer(namespace.as_str(), &reply).map(Response::new)
    }

    async fn find(&self, request: Request<pb::FindDocumentsRequest>) -> Answers<pb::FindDocumentsReply> {
        ask(&self.service, request).await
    }

    async fn pings(&self, request: Request<pb::PingsRequest>) -> Answers<pb::PingsReply> {
        ask(&self.service, request).await
    }
}
