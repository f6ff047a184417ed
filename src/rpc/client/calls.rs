//! Unary calls: commands without a stream, renewals, queries, and those of the `Admin` service.

use std::future::ready;

use futures_util::StreamExt;
use tonic::{Response, Status};

use super::RemoteService;
use super::endpoints::{Effect, admin, locks};
use crate::model::{Principal, Query, QueryReply, Reply};
use crate::rpc::convert::{Question, Wire, command, not_understood};
use crate::rpc::pb;
use crate::service::{Call, ClaimRef, Download, Freshness, Operation, RenewalCall, ServiceError, only_reply};

impl RemoteService {
    /// Sends a command as a unary call, with its proof.
    pub(super) async fn submit_unary(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, endpoint| async move { reply(locks(endpoint).submit(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, command(call, &call.proof)?, send).await
    }

    pub(super) async fn unary_renewal(&self, renewal: RenewalCall) -> Result<Reply, ServiceError> {
        let asked = pb::RenewRequest { renewals: vec![renewal.to_wire()] };
        let call = |asked, endpoint| async move {
            let replies = locks(endpoint).renew(asked).await?.into_inner().replies;
            Reply::from_wire("reply", only_reply(replies)?).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    /// Waits for an outcome with a unary call. The wait has no limit; keepalive detects a node that is gone.
    pub(super) async fn unary_outcome(&self, claim: &ClaimRef) -> Result<Reply, ServiceError> {
        let asked: pb::WaitOutcomeRequest = claim.to_wire();
        let endpoint = self.shared.endpoints.ask(Effect::Reads, (), |(), endpoint| ready(Ok(endpoint))).await?;
        let address = endpoint.address.clone();
        let settled = reply(locks(endpoint).wait_outcome(asked).await);
        if let Err(error @ (ServiceError::NotSent { .. } | ServiceError::Unknown { .. } | ServiceError::Stopping)) =
            &settled
        {
            self.shared.endpoints.forget(&address);
            if let Some(leader) = error.leader() {
                self.shared.endpoints.prefer(&leader.client);
            }
        }
        settled
    }

    pub(super) async fn question(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let send = |asked: pb::QueryRequest, endpoint| async move {
            let answered = locks(endpoint).query(asked).await?.into_inner();
            QueryReply::from_wire("reply", answered).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, Question { query, freshness }.to_wire(), send).await
    }
}

/// Converts the answer to a command.
fn reply(answered: Result<Response<pb::Reply>, Status>) -> Result<Reply, ServiceError> {
    Reply::from_wire("reply", answered?.into_inner()).map_err(not_understood)
}

impl RemoteService {
    pub(super) async fn operated(&self, operation: Operation) -> Result<(), ServiceError> {
        let ask = |operation, endpoint| async move {
            let mut admin = admin(endpoint);
            let asked = match operation {
                Operation::Transfer(to) => admin.transfer(pb::TransferRequest { to }).await.map(drop),
                Operation::RaiseFeatures(to) => admin.raise_features(pb::RaiseFeaturesRequest { to }).await.map(drop),
                Operation::ChangeMembers(change) => {
                    let change: pb::ChangeMembersRequest = change.to_wire();
                    admin.change_members(change).await.map(drop)
                }
            };
            Ok(asked?)
        };
        self.shared.endpoints.ask(Effect::Changes, operation, ask).await
    }

    pub(super) async fn principal(&self) -> Result<Principal, ServiceError> {
        let ask = |(), endpoint| async move {
            let principal = admin(endpoint).who_am_i(pb::WhoAmIRequest {}).await?.into_inner().principal;
            Principal::parse(&principal).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, (), ask).await
    }

    /// Downloads a file at the speed of its reader. The node ends it if the reader takes no part of it for too long.
    pub(super) async fn download(&self) -> Result<Download, ServiceError> {
        let begin = |(), endpoint| async move { Ok(admin(endpoint).backup(pb::BackupRequest {}).await?) };
        let pieces = self.shared.endpoints.ask(Effect::Reads, (), begin).await?.into_inner();
        Ok(Download::new(pieces.map(|piece| Ok(piece?.bytes))))
    }
}
