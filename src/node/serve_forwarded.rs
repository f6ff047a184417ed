//! Calls that other nodes forward to this one.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::audited::Act;
use super::auth::Caller;
use super::authorizer::right_of;
use super::forward::{Forward, Forwarded};
use super::service::answered;
use super::{Node, validate};
use crate::auth::Who;
use crate::limits;
use crate::model::Principal;
use crate::service::{NotSent, Operation, ServiceError};

impl Node {
    /// Serves a call that another node forwarded. Refuses it if this node does not lead, except for calls that every
    /// node answers. A command that waits here while a transfer begins is sent to the next leader.
    pub(super) async fn serve_forwarded(&self, forward: Forward) -> Forwarded {
        if let Forward::As { principal, call } = forward {
            return self.serve_as(principal, &call).await;
        }
        let anywhere = matches!(forward, Forward::Hello | Forward::Digests | Forward::CertificateEnd);
        if !(anywhere || self.serves().await) {
            let leader = self.core.leader_hint();
            return Forwarded::Error(ServiceError::NotSent { why: NotSent::NotLeader, leader });
        }
        self.served(forward).await.unwrap_or_else(Forwarded::Error)
    }

    async fn served(&self, forward: Forward) -> Result<Forwarded, ServiceError> {
        let authorizer = match &forward {
            // Nodes send these for themselves, not for a caller.
            Forward::Hello | Forward::Digests | Forward::CertificateEnd => None,
            Forward::Submit(_)
            | Forward::Renew(_)
            | Forward::Settled { .. }
            | Forward::Query(_)
            | Forward::Status
            | Forward::As { .. } => self.authorizer()?,
            Forward::Operate(operation) => {
                self.needs(right_of(operation), Act::of_operation(operation).name)?;
                None
            }
        };
        let authorizer = authorizer.as_ref();
        match forward {
            Forward::Submit(call) => {
                validate::check(&call)?;
                let reply = match self.reply_without_entry(authorizer, &call).await? {
                    Some(reply) => reply,
                    None => answered(self.propose_authorized(authorizer, *call)?).await?,
                };
                Ok(Forwarded::Reply(self.redacted(authorizer, reply)))
            }
            Forward::Renew(renewals) => self.renew_here(authorizer, renewals).await.map(Forwarded::Replies),
            Forward::Settled { claim, wait_ms } => {
                let wait = Duration::from_millis(wait_ms.min(limits::SETTLED_WAIT_MS));
                self.wait_outcome_here(&claim, wait).await.map(Forwarded::Reply)
            }
            Forward::Query(query) => self.query_here(authorizer, &query).await.map(Forwarded::QueryReply),
            Forward::Operate(operation) => {
                let node = self.clone();
                let operated = self.detached(async move { node.operate_here(operation).await });
                operated.await.map(|()| Forwarded::Operated)
            }
            Forward::Status => Ok(Forwarded::Status(self.status_here())),
            Forward::Digests => Ok(Forwarded::Digests(self.core.consensus.digests())),
            Forward::CertificateEnd => Ok(Forwarded::CertificateEnd(self.certificate_end())),
            Forward::Hello => Ok(Forwarded::Hello(self.announcement())),
            // `serve_forwarded` has taken off the first principal.
            Forward::As { .. } => Err(ServiceError::Internal("a call of two principals".to_owned())),
        }
    }

    /// Executes the request of an operator on this node, which leads.
    pub(super) fn operate_here(&self, operation: Operation) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            match operation {
                Operation::Transfer(to) => self.transfer_here(to).await,
                Operation::RaiseFeatures(to) => self.raise_features_here(to).await,
                Operation::ChangeMembers(change) => self.change_members_here(change).await,
            }
        })
    }

    /// Serves the call of a principal that another node has proven. This node decides by its own rules.
    async fn serve_as(&self, principal: Principal, call: &[u8]) -> Forwarded {
        let caller = Caller { who: Who::Proven(principal), ..self.caller.clone() };
        match Forward::decode(call) {
            Ok(Forward::As { .. }) => Forwarded::Error(ServiceError::Internal("a call of two principals".to_owned())),
            Ok(call) => Box::pin(Self { caller, ..self.clone() }.serve_forwarded(call)).await,
            Err(why) => Forwarded::Error(ServiceError::Internal(why)),
        }
    }
}
