//! The `Admin` service: calls about the cluster.

use std::pin::Pin;

use futures_util::Stream;
use tonic::{Request, Response, Status};

use super::caller::OfCallers;
use crate::rpc::convert::Wire;
use crate::rpc::pb;
use crate::service::{Download, LockService, MemberChange, Operation};

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
        Ok(Response::new(pieces(self.service.of(&request)?.backup().await?)))
    }
}

/// A file as a stream of pieces.
pub(super) type Pieces = Pin<Box<dyn Stream<Item = Result<pb::BackupPiece, Status>> + Send>>;

fn pieces(download: Download) -> Pieces {
    Box::pin(futures_util::stream::unfold(Some(download), |download| async move {
        let mut download = download?;
        match download.next().await {
            Ok(Some(bytes)) => Some((Ok(pb::BackupPiece { bytes }), Some(download))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    }))
}
