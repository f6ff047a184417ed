//! Calls of the `Admin` service.

use tokio::sync::mpsc;

use super::RemoteService;
use super::endpoints::{self, Effect};
use crate::model::Principal;
use crate::rpc::convert::{Wire, not_understood};
use crate::rpc::pb;
use crate::service::{Download, Operation, ServiceError};

impl RemoteService {
    pub(super) async fn operated(&self, operation: Operation) -> Result<(), ServiceError> {
        let ask = |operation, endpoint| async move {
            let mut admin = endpoints::admin(endpoint);
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
            let principal = endpoints::admin(endpoint).who_am_i(pb::WhoAmIRequest {}).await?.into_inner().principal;
            Principal::parse(&principal).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, (), ask).await
    }

    /// Downloads a file at the speed of its reader. The node ends it if the reader takes no part of it for too long.
    pub(super) async fn download(&self) -> Result<Download, ServiceError> {
        let begin = |(), endpoint| async move { Ok(endpoints::admin(endpoint).backup(pb::BackupRequest {}).await?) };
        let mut wire = self.shared.endpoints.ask(Effect::Reads, (), begin).await?.into_inner();
        let (sender, receiver) = mpsc::channel(2);
        self.shared.tasks.run(async move {
            loop {
                let next = tokio::select! {
                    () = sender.closed() => return,
                    next = wire.message() => next,
                };
                let next = match next {
                    Ok(Some(piece)) => Ok(piece.bytes),
                    Ok(None) => return,
                    Err(status) => Err(status.into()),
                };
                let last = next.is_err();
                if sender.send(next).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Download::new(receiver))
    }
}
