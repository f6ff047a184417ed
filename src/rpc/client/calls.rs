//! The calls of the lock service: a session's commands and renewals on its stream, all others as unary calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{ready, try_join_all};
use tokio::sync::watch;
use tonic::{Response, Status as WireStatus};

use super::RemoteService;
use super::endpoints::{ConnectedEndpoint, Effect, admin, locks};
use crate::limits;
use crate::model::{
    Attach, Claim, Command, Event, OpenSession, Outcome, Principal, Query, QueryReply, RenewalTarget, Reply, RequestId,
    SessionId,
};
use crate::rpc::convert::{Question, Wire, command, not_understood};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, NotSent, Operation, Proof, RenewalCall, ServiceError,
    Status, Subscription, only_reply,
};

impl LockService for RemoteService {
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn holds its argument twice: as argument and as variable"
    )]
    fn submit(&self, call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send {
        async move { self.submitted(&call).await }
    }

    fn answers_within(&self) -> Option<Duration> {
        Some(self.shared.endpoints.settings.request_wait)
    }

    fn attachment(&self, session: SessionId) -> watch::Receiver<bool> {
        self.shared.streams.lock().get(&session).map_or_else(|| watch::channel(false).1, |stream| stream.alive.clone())
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        try_join_all(renewals.into_iter().map(|renewal| self.renew_one(renewal))).await
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        if let Claim::Request(RequestId { session, number }) = claim.claim
            && self.shared.streams.lock().contains_key(&session)
        {
            let detached = || ServiceError::not_sent(NotSent::Detached);
            if let Some(reply) = self.stream(session).ok_or_else(detached)?.outcome(number).await {
                return Ok(reply);
            }
            // The acquire was queued on an earlier stream, or on one that has just been replaced.
            // This wait has no limit, and does not count as an unanswered frame.
            let asked = pb::StreamSettle { request: number, lock: claim.lock.name.to_string() };
            return self.stream(session).ok_or_else(detached)?.ask(Body::Settle(asked)).await;
        }
        Box::pin(self.unary_outcome(&claim)).await
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let send = |asked: pb::QueryRequest, endpoint| async move {
            let answered = locks(endpoint).query(asked).await?.into_inner();
            QueryReply::from_wire("reply", answered).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, Question { query, freshness }.to_wire(), send).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let asked: pb::WatchRequest = subscription.to_wire();
        let watch = |asked: pb::WatchRequest, endpoint: ConnectedEndpoint| async move {
            let address = endpoint.address.clone();
            Ok((locks(endpoint).watch(asked).await?.into_inner(), address))
        };
        let (mut wire, address) = self.shared.endpoints.ask(Effect::Reads, asked, watch).await?;
        let endpoints = Arc::clone(&self.shared.endpoints);
        let (sender, events) = Events::channel(limits::EVENTS_WAITING_MAX);
        self.shared.tasks.run(async move {
            loop {
                let next: Result<Event, ServiceError> = tokio::select! {
                    () = sender.closed() => return,
                    next = wire.message() => match next {
                        Ok(Some(event)) => Event::from_wire("event", event).map_err(not_understood),
                        Ok(None) => return,
                        Err(status) => Err(status.into()),
                    },
                };
                if next.as_ref().is_err_and(leaves_node) {
                    endpoints.leave(&address);
                }
                let last = next.is_err();
                if !sender.send(next).await || last {
                    return;
                }
            }
        });
        Ok(events)
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        let stream = self.shared.streams.lock().get(&session).cloned();
        stream.ok_or_else(|| ServiceError::not_sent(NotSent::Detached))?.state.hold_events.subscribe()
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        let status = |(), endpoint| async move {
            let status = admin(endpoint).status(pb::StatusRequest {}).await?.into_inner();
            Status::from_wire("status", status).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, (), status).await
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
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

    /// Downloads a file at the speed of its reader. The node ends it if the reader takes no part of it for too long.
    async fn backup(&self) -> Result<Download, ServiceError> {
        let begin = |(), endpoint| async move { Ok(admin(endpoint).backup(pb::BackupRequest {}).await?) };
        let pieces = self.shared.endpoints.ask(Effect::Reads, (), begin).await?.into_inner();
        Ok(Download::new(pieces.map(|piece| Ok(piece?.bytes))))
    }

    async fn whoami(&self) -> Result<Principal, ServiceError> {
        let ask = |(), endpoint| async move {
            let principal = admin(endpoint).who_am_i(pb::WhoAmIRequest {}).await?.into_inner().principal;
            Principal::parse(&principal).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, (), ask).await
    }
}

impl RemoteService {
    /// Sends a session's command on its stream, or as a unary call if the caller has the proof.
    async fn session_command(&self, session: SessionId, call: &Call) -> Result<Reply, ServiceError> {
        let Some(stream) = self.stream(session) else {
            return match &call.proof {
                Proof::Handle { .. } => Box::pin(self.submit_unary(call)).await,
                Proof::Trusted => Err(ServiceError::not_sent(NotSent::Detached)),
            };
        };
        let body = Body::Command(command(call, &Proof::Trusted)?);
        let sent = stream.send(body, call.command.may_wait().map(|(_, request)| request.number));
        let answered = sent.answer(&stream.overflow).await;
        if matches!(&answered, Ok(Reply { outcome: Outcome::Closed, .. })) {
            self.shared.streams.lock().remove(&session);
        }
        answered
    }

    /// Submits a command. Rare calls are boxed: every caller's future reserves space for the largest call, and is moved
    /// with it.
    async fn submitted(&self, call: &Call) -> Result<Reply, ServiceError> {
        if let Command::OpenSession(OpenSession { namespace, .. }) = &call.command {
            return Box::pin(self.bind(namespace.clone(), call, None)).await;
        }
        if let Command::Attach(Attach { namespace, session, attempt, .. }) = &call.command {
            return Box::pin(self.bind(namespace.clone(), call, Some((*session, *attempt)))).await;
        }
        match call.command.session() {
            Some(session) if !call.command.is_node_made() => self.session_command(session, call).await,
            Some(_) | None => Box::pin(self.submit_unary(call)).await,
        }
    }

    async fn renew_one(&self, renewal: RenewalCall) -> Result<Reply, ServiceError> {
        if let RenewalTarget::Session(session) = renewal.target {
            if let Some(stream) = self.stream(session) {
                let body = Body::Renew(pb::StreamRenew { attempt: renewal.attempt });
                return stream.ask(body).await;
            }
            // A session that had a stream attaches again: only a stream shows the cluster that its client is gone.
            if renewal.proof == Proof::Trusted || self.shared.streams.lock().contains_key(&session) {
                return Err(ServiceError::not_sent(NotSent::Detached));
            }
        }
        Box::pin(self.unary_renewal(renewal)).await
    }

    /// Sends a command as a unary call, with its proof.
    async fn submit_unary(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, endpoint| async move { reply(locks(endpoint).submit(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, command(call, &call.proof)?, send).await
    }

    async fn unary_renewal(&self, renewal: RenewalCall) -> Result<Reply, ServiceError> {
        let asked = pb::RenewRequest { renewals: vec![renewal.to_wire()] };
        let call = |asked, endpoint| async move {
            let replies = locks(endpoint).renew(asked).await?.into_inner().replies;
            Reply::from_wire("reply", only_reply(replies)?).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    /// Waits for an outcome with a unary call. The wait has no limit; keepalive detects a node that is gone.
    async fn unary_outcome(&self, claim: &ClaimRef) -> Result<Reply, ServiceError> {
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
}

/// Converts the answer to a command.
fn reply(answered: Result<Response<pb::Reply>, WireStatus>) -> Result<Reply, ServiceError> {
    Reply::from_wire("reply", answered?.into_inner()).map_err(not_understood)
}

/// Whether the next watch is made at another node after this error. A node without a leader accepts every watch and
/// ends it later, so a client that came back would get no event.
fn leaves_node(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader | NotSent::Unreachable(_), .. }
            | ServiceError::Stopping
            | ServiceError::Unknown { .. }
    )
}
