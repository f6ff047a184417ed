//! The `Admin` service: calls about the cluster.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::caller::OfCallers;
use crate::rpc::convert::Wire;
use crate::rpc::pb;
use crate::service::{LockService, MemberChange, Operation};

/// The `Admin` service on top of a lock service.
pub(in crate::rpc) struct Admin<S> {
    pub(in crate::rpc) service: OfCallers<S>,
}

#[tonic::async_trait]
impl<S: LockService> pb::admin_server::Admin for Admin<S> {
    async fn status(&self, request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusReply>, Status> {
        Ok(Response::new(self.service.of(&request)?.status().await?.to_wire()))
    }

    async fn transfer(&self, request: Request<pb::TransferRequest>) -> Result<Response<pb::TransferReply>, Status> {
        let service = self.service.of(&request)?;
        let to = request.into_inner().to;
        service.operate(Operation::Transfer(to)).await?;
        Ok(Response::new(pb::TransferReply {}))
    }

    async fn raise_features(
        &self,
        request: Request<pb::RaiseFeaturesRequest>,
    ) -> Result<Response<pb::RaiseFeaturesReply>, Status> {
        let service = self.service.of(&request)?;
        let to = request.into_inner().to;
        service.operate(Operation::RaiseFeatures(to)).await?;
        Ok(Response::new(pb::RaiseFeaturesReply {}))
    }

    async fn change_members(
        &self,
        request: Request<pb::ChangeMembersRequest>,
    ) -> Result<Response<pb::ChangeMembersReply>, Status> {
        let service = self.service.of(&request)?;
        let change = MemberChange::from_wire("change", request.into_inner())?;
        service.operate(Operation::ChangeMembers(change)).await?;
        Ok(Response::new(pb::ChangeMembersReply {}))
    }

    async fn who_am_i(&self, request: Request<pb::WhoAmIRequest>) -> Result<Response<pb::WhoAmIReply>, Status> {
        let principal = self.service.of(&request)?.whoami().await?.to_string();
        Ok(Response::new(pb::WhoAmIReply { principal }))
    }

    type BackupStream = Pieces;

    async fn backup(&self, request: Request<pb::BackupRequest>) -> Result<Response<Pieces>, Status> {
        let pieces = self.service.of(&request)?.backup().await?.into_pieces();
        Ok(Response::new(pieces.map(|bytes| Ok(pb::BackupPiece { bytes: bytes? })).boxed()))
    }
}

/// A file as a stream of pieces.
pub(super) type Pieces = BoxStream<'static, Result<pb::BackupPiece, Status>>;
