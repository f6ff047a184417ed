//! The gRPC client as a lock service: finds the leader, follows it, and distinguishes "not sent" from "outcome
//! unknown".
//!
//! A session has one stream on a connection that it shares with other sessions. All other calls are unary. A command
//! that may have been applied is never repeated here: the caller that owns its request number decides that.

mod calls;
mod discovery;
mod endpoints;
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

use self::endpoints::{Effect, Endpoints};
use self::stream::StreamHandle;
use crate::client::{Client, ClientError, Retry};
use crate::clock::SystemClock;
use crate::limits;
use crate::model::{Invalid, Namespace, Outcome, Query, Refusal, Reply, SessionId};
use crate::mutex::Mutex;
use crate::rpc::background::Tasks;
use crate::rpc::convert::command;
use crate::rpc::pb::client_frame::Body;
use crate::service::{Call, Freshness, LockService, NotSent, Proof, ServiceError};
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
        f.debug_struct("RemoteService").field("endpoints", &self.shared.endpoints.settings.endpoints).finish()
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
            self.shared.endpoints.forget(&stream.state.address);
        }
        let left = left.map(|stream| stream.state.address.clone());
        let (shared, moved, left) = (&*self.shared, &moved, left.as_deref());
        let bind = |(namespace, body), endpoint| async move {
            let (stream, led_elsewhere) =
                StreamHandle::open(&shared.endpoints, &shared.tasks, endpoint, namespace).await?;
            if let Some(leader) = led_elsewhere
                && Some(leader.client.as_str()) != left
                && !moved.swap(true, Ordering::Relaxed)
            {
                return Err(ServiceError::NotSent { why: NotSent::NotLeader, leader: Some(leader) });
            }
            let reply = stream.ask(body).await?;
            Ok((stream, reply))
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
        older.inspect(|older| older.state.replaced.notify_one());
    }
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
