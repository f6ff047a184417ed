//! The calls of the `Documents` service.

use super::RemoteService;
use super::ask::{answer, reply};
use super::endpoints::{Effect, documents};
use crate::model::{DocumentCommand, Namespace, QueryReply, Reply, WhichDocuments, WhichPings};
use crate::rpc::convert::{Sent, find_documents, find_pings};
use crate::rpc::pb;
use crate::service::ServiceError;

impl RemoteService {
    pub(super) async fn document(&self, command: &DocumentCommand, sent: Sent) -> Result<Reply, ServiceError> {
        let asked = pb::DocumentRequest::from((command, sent));
        let call = |asked, at| async move { reply(documents(at).change(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    pub(super) async fn find_documents(
        &self,
        namespace: &Namespace,
        which: &WhichDocuments,
        rows: u32,
        how: i32,
    ) -> Result<QueryReply, ServiceError> {
        let asked = find_documents(namespace, which, rows, how);
        let call = |asked, at| async move { answer(documents(at).find(asked).await) };
        self.shared.endpoints.ask(Effect::Reads, asked, call).await
    }

    pub(super) async fn find_pings(
        &self,
        namespace: &Namespace,
        which: &WhichPings,
        rows: u32,
        how: i32,
    ) -> Result<QueryReply, ServiceError> {
        let asked = find_pings(namespace, which, rows, how);
        let call = |asked, at| async move { answer(documents(at).pings(asked).await) };
        self.shared.endpoints.ask(Effect::Reads, asked, call).await
    }
}
