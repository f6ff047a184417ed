//! The `Documents` service: locks for those who come from a config server.

use tonic::{Request, Response, Status};

use super::convert::{documents, error_to_status, known, pings, reply_to_answer};
use super::pb;
use crate::model::{Invalid, Namespace, Query, QueryReply};
use crate::service::{Call, Freshness, LockService, ServiceError};

/// `Documents` over any service.
pub(super) struct Documents<S> {
    pub(super) service: S,
}

impl<S: LockService> Documents<S> {
    async fn question(&self, query: Query, how: i32) -> Result<QueryReply, Status> {
        let freshness = Freshness::from(known::<pb::Freshness>("freshness", how).map_err(refused)?);
        self.service.query(query, freshness).await.map_err(|error| error_to_status(&error))
    }
}

fn refused(invalid: Invalid) -> Status {
    error_to_status(&ServiceError::Invalid(invalid))
}

fn asked_in(namespace: &str) -> Result<Namespace, Status> {
    super::convert::namespace(namespace).map_err(refused)
}

#[tonic::async_trait]
impl<S: LockService> pb::documents_server::Documents for Documents<S> {
    async fn change(&self, request: Request<pb::DocumentRequest>) -> Result<Response<pb::Reply>, Status> {
        let asked = request.into_inner();
        let namespace = asked_in(&asked.namespace)?;
        let call = Call::try_from(asked).map_err(refused)?;
        let reply = self.service.submit(call).await.map_err(|error| error_to_status(&error))?;
        reply_to_answer(namespace.as_str(), &reply).map(Response::new)
    }

    async fn find(
        &self,
        request: Request<pb::FindDocumentsRequest>,
    ) -> Result<Response<pb::FindDocumentsReply>, Status> {
        let asked = request.into_inner();
        let (namespace, how) = (asked_in(&asked.namespace)?, asked.freshness);
        let answered = self.question(Query::try_from(asked).map_err(refused)?, how).await?;
        documents(&namespace, answered).map(Response::new).map_err(|error| error_to_status(&error))
    }

    async fn pings(&self, request: Request<pb::PingsRequest>) -> Result<Response<pb::PingsReply>, Status> {
        let asked = request.into_inner();
        let (namespace, how) = (asked_in(&asked.namespace)?, asked.freshness);
        let answered = self.question(Query::try_from(asked).map_err(refused)?, how).await?;
        pings(&namespace, answered).map(Response::new).map_err(|error| error_to_status(&error))
    }
}
