//! The `Admin` service: the cluster itself.

use tonic::{Request, Response, Status};

use super::convert::error_to_status;
use super::pb;
use crate::service::LockService;

/// `Admin` over any service.
pub(super) struct Admin<S> {
    pub(super) service: S,
}

#[tonic::async_trait]
impl<S: LockService> pb::admin_server::Admin for Admin<S> {
    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusReply>, Status> {
        let status = self.service.status().await.map_err(|error| error_to_status(&error))?;
        Ok(Response::new((&status).into()))
    }

    async fn transfer(&self, request: Request<pb::TransferRequest>) -> Result<Response<pb::TransferReply>, Status> {
        let to = request.into_inner().to;
        self.service.transfer(to).await.map_err(|error| error_to_status(&error))?;
        Ok(Response::new(pb::TransferReply {}))
    }

    async fn raise_features(
        &self,
        request: Request<pb::RaiseFeaturesRequest>,
    ) -> Result<Response<pb::RaiseFeaturesReply>, Status> {
        let to = request.into_inner().to;
        self.service.raise_features(to).await.map_err(|error| error_to_status(&error))?;
        Ok(Response::new(pb::RaiseFeaturesReply {}))
    }
}
