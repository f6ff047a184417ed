//! The gRPC client as a lock service: finds the leader, follows it, and distinguishes "not sent" from "outcome
//! unknown".
//!
//! A session has one stream on a connection that it shares with other sessions. All other calls are unary. A command
//! that may have been applied is never repeated here: the caller that owns its request number decides that.

mod calls;
mod discovery;
mod endpoints;
mod hello;
mod hold_events;
mod pin;
mod send_queue;
pub(super) mod settings;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::watch;

use self::endpoints::{ConnectedEndpoint, Effect, Endpoints};
use self::stream::StreamHandle;
use crate::client::{Client, ClientError, Retry};
use crate::clock::SystemClock;
use crate::limits;
use crate::model::{
    Attach, Claim, Command, Event, Invalid, Namespace, OpenSession, Outcome, Principal, Query, QueryReply, Refusal,
    RenewalTarget, Reply, RequestId, SessionId,
};
use crate::mutex::Mutex;
use crate::rpc::background::Tasks;
use crate::rpc::convert::{Wire, command, not_understood};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, NotSent, Operation, Proof, RenewalCall, ServiceError,
    Status, Subscription,
};
pub use settings::RemoteSettings;

/// A lock service over gRPC. Dropping the last clone breaks its streams.
#[derive(Clone)]
pub struct RemoteService {
    shared: Arc<Shared>,
}

struct Shared {
    endpoints: Arc<Endpoints>,
    streams: Mutex<BTreeMap<SessionId, Arc<StreamHandle>>>,
    tasks: Tasks,
}

impl std::fmt::Debug for RemoteService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteService").field("endpoints", &self.shared.endpoints.addresses()).finish()
    }
}

impl RemoteService {
    /// Checks the settings. Connects with the first call.
    pub fn new(settings: RemoteSettings) -> Result<Self, Invalid> {
        let endpoints = Arc::new(Endpoints::new(settings)?);
        let shared = Shared { endpoints, streams: Mutex::default(), tasks: Tasks::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn stream(&self, session: SessionId) -> Option<Arc<StreamHandle>> {
        self.shared.streams.lock().get(&session).filter(|stream| !stream.is_over()).cloned()
    }

    /// Opens a stream and binds it to a new session, or to a session that had a stream before.
    async fn bind(
        &self,
        namespace: Namespace,
        call: &Call,
        attaching: Option<(SessionId, u64)>,
    ) -> Result<Reply, ServiceError> {
        let body = Body::Command(command(call, &Proof::Trusted)?);
        let moved = AtomicBool::new(false);
        // A session attaches again because its old stream is over or hangs: the node of that stream is tried last, and
        // hints to it are not followed.
        let left = attaching.and_then(|(session, _)| self.shared.streams.lock().get(&session).cloned());
        if let Some(stream) = left.as_ref().filter(|stream| !stream.is_over()) {
            self.shared.endpoints.forget(&stream.address);
        }
        let left = left.map(|stream| stream.address.clone());
        let (shared, moved, left) = (&*self.shared, &moved, left.as_deref());
        let bind = |(namespace, body), endpoint| async move {
            let opened = StreamHandle::open(&shared.endpoints, &shared.tasks, endpoint, namespace).await?;
            if let Some(leader) = opened.led_elsewhere
                && Some(leader.client.as_str()) != left
                && !moved.swap(true, Ordering::Relaxed)
            {
                return Err(ServiceError::NotSent { why: NotSent::NotLeader, leader: Some(leader) });
            }
            let reply = opened.stream.ask(body, None).await?;
            Ok((opened.stream, reply))
        };
        let (mut stream, reply) = shared.endpoints.ask_but_last(left, Effect::Repeats, (namespace, body), bind).await?;
        shared.endpoints.open_standbys(&shared.tasks);
        match (&reply.outcome, attaching) {
            (Outcome::Opened { session, .. }, _) => self.keep(*session, stream),
            (Outcome::Attached { .. }, Some((session, attempt))) => {
                stream.attempt = attempt;
                self.keep(session, stream);
            }
            (Outcome::Refused(Refusal::SessionEnded { .. }), Some((session, _))) => {
                self.shared.streams.lock().remove(&session);
            }
            (_, _) => {}
        }
        Ok(reply)
    }

    /// Keeps the newer one of a session's two streams and drops the other. The attach of the newer stream is not always
    /// answered last. Streams that are over are kept until there are many: their sessions attach again.
    fn keep(&self, session: SessionId, stream: StreamHandle) {
        let mut streams = self.shared.streams.lock();
        if streams.len() >= limits::STREAMS_A_CONNECTION_MAX as usize {
            streams.retain(|_, stream| !stream.is_over());
        }
        let newer = streams.get(&session).is_some_and(|kept| stream.attempt < kept.attempt);
        let stream = Arc::new(stream);
        let older = if newer { Some(stream) } else { streams.insert(session, stream) };
        // Calls that wait on the older stream keep it alive, and a node that hangs would never answer them.
        older.inspect(|older| older.notify_replaced());
    }

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
                return stream.ask(body, None).await;
            }
            // A session that had a stream attaches again: only a stream shows the cluster that its client is gone.
            if renewal.proof == Proof::Trusted || self.shared.streams.lock().contains_key(&session) {
                return Err(ServiceError::not_sent(NotSent::Detached));
            }
        }
        Box::pin(self.unary_renewal(renewal)).await
    }
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

impl Client<RemoteService> {
    /// Returns a client of the cluster at these endpoints, `HOST:PORT` each; one that answers is enough. It contacts
    /// them now: the error names every endpoint and why it did not answer. Endpoints of two clusters are an error, too.
    /// If the cluster is not founded yet, waits for that, for at most the time of one request.
    pub async fn connect(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ClientError> {
        Self::connect_with(RemoteSettings::new(endpoints)).await
    }

    /// Returns a client with encryption, another time limit for connecting and one request, or the id of the only
    /// cluster to accept.
    pub async fn connect_with(settings: RemoteSettings) -> Result<Self, ClientError> {
        let wait = settings.request_wait;
        let service = RemoteService::new(settings).map_err(ServiceError::Invalid)?;
        // Any running node of a founded cluster answers a stale read, with or without a leader.
        let founded = || async {
            match service.query(Query::Totals, Freshness::Stale).await {
                Err(error @ ServiceError::NotSent { why: NotSent::NoLeader, .. }) => Err(error),
                answered => Ok(answered),
            }
        };
        // The service itself ends each attempt in time, with an error that names every endpoint.
        let retry = Retry::new(Arc::new(SystemClock::monotonic()), wait);
        retry.of_attempts_within(service.answers_within()).until_read(founded).await??;
        Ok(Client::new(service).request_wait(wait))
    }
}

impl LockService for RemoteService {
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn holds its argument twice: as argument and as variable"
    )]
    fn submit(&self, call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send {
        async move { self.submitted(&call).await }
    }

    fn answers_within(&self) -> Option<Duration> {
        Some(self.shared.endpoints.request_wait)
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
            return self.stream(session).ok_or_else(detached)?.wait_outcome(number, &claim.lock).await;
        }
        Box::pin(self.unary_outcome(&claim)).await
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        self.question(query, freshness).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let asked: pb::WatchRequest = subscription.to_wire();
        let watch = |asked: pb::WatchRequest, endpoint: ConnectedEndpoint| async move {
            let address = endpoint.address.clone();
            Ok((endpoints::locks(endpoint).watch(asked).await?.into_inner(), address))
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
        stream.ok_or_else(|| ServiceError::not_sent(NotSent::Detached))?.hold_events.subscribe()
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        let status = |(), endpoint| async move {
            let status = endpoints::admin(endpoint).status(pb::StatusRequest {}).await?.into_inner();
            Status::from_wire("status", status).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, (), status).await
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        self.operated(operation).await
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        self.download().await
    }

    async fn whoami(&self) -> Result<Principal, ServiceError> {
        self.principal().await
    }
}
