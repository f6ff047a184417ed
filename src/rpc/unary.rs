//! The `Locks` service: each call parsed, passed on and answered; streams get a task of their own.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{Either, pending};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::calls::Calls;
use super::convert::{Question, Wire, error_to_status, lock_key, namespace, reply_to_answer, required, subscription};
use super::pb;
use super::session::{Outgoing, SessionStream};
use super::tasks::Tasks;
use super::tokens::{TokenStream, token_stream};
use crate::limits;
use crate::model::{FencingToken, Handle, Invalid, LockKey, Query, QueryReply, QueryResult, RenewalTarget, SessionId};
use crate::service::{
    Call, ClaimRef, Events, Freshness, LockService, Proof, RenewalCall, Scope, ServerInfo, ServiceError, Subscription,
};

/// `Locks` over any service.
pub(super) struct Locks<S> {
    service: S,
    info: ServerInfo,
    /// True once the node stops: what waits without a bound of its own ends then.
    stop: watch::Receiver<bool>,
    tasks: Tasks,
    calls: Calls<S>,
}

pub(super) type Answers<T> = Result<Response<T>, Status>;

impl<S: LockService> Locks<S> {
    pub(super) fn new(service: S, info: ServerInfo, stop: watch::Receiver<bool>, tasks: Tasks) -> Self {
        let calls = Calls::new(service.clone(), tasks.clone(), info.node);
        Self { service, info, stop, tasks, calls }
    }

    async fn submit<M>(&self, message: M) -> Answers<pb::Reply>
    where
        Call: TryFrom<M, Error = Invalid>,
    {
        let call = Call::try_from(message).map_err(refused)?;
        let reply = self.service.submit(call).await.map_err(|error| error_to_status(&error))?;
        reply_to_answer(&reply).map(Response::new)
    }

    /// Runs what has no deadline of its own until the node stops.
    async fn until_stopped<T>(&self, work: impl Future<Output = Result<T, ServiceError>>) -> Result<T, Status> {
        let mut stop = self.stop.clone();
        let answered = tokio::select! {
            answered = work => answered,
            _ = stop.wait_for(|stopped| *stopped) => Err(ServiceError::Stopping),
        };
        answered.map_err(|error| error_to_status(&error))
    }

    /// The state of a lock as soon as it is free, or when the time is over. It is looked at again only after something happened
    /// to it.
    async fn free(&self, lock: LockKey, longest: Option<Duration>) -> Result<QueryReply, ServiceError> {
        let scope = Scope::Namespace { namespace: lock.namespace.clone(), prefix: lock.name.to_string() };
        let subscription = || Subscription { scope: scope.clone(), after: None, cluster_id: None };
        // It begins now, and not with the first look.
        let mut over = pin!(longest.map_or(Either::Right(pending()), |longest| Either::Left(sleep(longest))));
        let mut events = self.service.subscribe(subscription()).await?;
        loop {
            let query = Query::Inspect { lock: lock.clone() };
            let answered = self.service.query(query, Freshness::Linearizable).await?;
            if matches!(&answered.answer, QueryResult::Lock(view) if view.free) {
                return Ok(answered);
            }
            let missed = tokio::select! {
                biased;
                () = &mut over => return Ok(answered),
                freed = may_be_free(&mut events, &lock) => !freed?,
            };
            if missed {
                events = self.service.subscribe(subscription()).await?;
            }
        }
    }
}

/// Waits until the lock may have become free; false where events were missed and the subscription is over.
async fn may_be_free(events: &mut Events, lock: &LockKey) -> Result<bool, ServiceError> {
    loop {
        match events.next().await {
            Ok(event) if event.may_free(lock) => return Ok(true),
            Ok(_) => {}
            Err(ServiceError::EventsMissed { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn refused(invalid: Invalid) -> Status {
    error_to_status(&ServiceError::Invalid(invalid))
}

fn renewal(namespace_text: &str, renewal: pb::Renewal) -> Result<RenewalCall, Invalid> {
    let handle = Handle::parse(&renewal.handle)?;
    let proof = |handle, of: &str| Ok(Proof::Handle { handle, namespace: namespace(of)? });
    let (target, proven) = match required("target", renewal.target)? {
        pb::renewal::Target::Session(session) => {
            (RenewalTarget::Session(SessionId::from_u64(session)?), proof(handle, namespace_text)?)
        }
        pb::renewal::Target::Lease(pb::LeaseTarget { lock, lease_ms }) => {
            let lock = required("lock", lock)?;
            let of = if lock.namespace.is_empty() { namespace_text } else { &lock.namespace };
            (RenewalTarget::Lease { lock: lock_key(of, &lock.name)?, handle, lease_ms }, Proof::Trusted)
        }
        pb::renewal::Target::Hold(pb::HoldTarget { lock, session, token, lease_ms }) => {
            let lock = required("lock", lock)?;
            let of = if lock.namespace.is_empty() { namespace_text } else { &lock.namespace };
            let (lock, session) = (lock_key(of, &lock.name)?, SessionId::from_u64(session)?);
            let token = FencingToken::from_u64(token)?;
            (RenewalTarget::Hold { lock, session, token, lease_ms }, proof(handle, of)?)
        }
    };
    Ok(RenewalCall { target, proof: proven, attempt: renewal.attempt })
}

fn renewals(asked: pb::RenewRequest) -> Result<Vec<RenewalCall>, Invalid> {
    asked.renewals.into_iter().map(|one| renewal(&asked.namespace, one)).collect()
}

/// Events as they come, until the subscription is cut or the node stops.
fn event_stream(events: Events, stop: watch::Receiver<bool>) -> EventStream {
    Box::pin(stream::unfold(Some((events, stop)), |running| async move {
        let (mut events, mut stop) = running?;
        let next = tokio::select! {
            next = events.next() => next,
            _ = stop.wait_for(|stopped| *stopped) => Err(ServiceError::Stopping),
        };
        Some(match next {
            Ok(event) => (Ok(pb::Event::from(&event)), Some((events, stop))),
            Err(error) => (Err(error_to_status(&error)), None),
        })
    }))
}

/// The frames of a session's stream as they are written.
type Frames = stream::Map<ReceiverStream<Outgoing>, fn(Outgoing) -> Result<pb::ServerFrame, Status>>;

type EventStream = Pin<Box<dyn Stream<Item = Result<pb::Event, Status>> + Send>>;

#[tonic::async_trait]
impl<S: LockService> pb::locks_server::Locks for Locks<S> {
    type SessionStream = Frames;
    type WatchStream = EventStream;
    type WatchTokensStream = TokenStream;

    async fn session(&self, request: Request<Streaming<pb::ClientFrame>>) -> Answers<Self::SessionStream> {
        let (outgoing, frames) = mpsc::channel(limits::STREAM_FRAMES_WAITING_MAX);
        let stream = SessionStream::new(self.service.clone(), self.info.clone(), self.stop.clone(), outgoing);
        self.tasks.run(stream.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(frames).map(|frame: Outgoing| frame.map(|frame| *frame))))
    }

    async fn open_session(&self, request: Request<pb::OpenSessionRequest>) -> Answers<pb::OpenSessionReply> {
        self.calls.open(request.into_inner()).await.map(Response::new)
    }

    async fn keep_alive(&self, request: Request<pb::KeepAliveRequest>) -> Answers<pb::KeepAliveReply> {
        self.calls.keep_alive(request.into_inner()).await.map(Response::new)
    }

    async fn acquire(&self, request: Request<pb::AcquireRequest>) -> Answers<pb::AcquireReply> {
        let mut stop = self.stop.clone();
        let stopped = async move { drop(stop.wait_for(|stopped| *stopped).await) };
        self.calls.acquire(request.into_inner(), stopped).await.map(Response::new)
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Answers<pb::ReleaseReply> {
        self.calls.release(request.into_inner()).await.map(Response::new)
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Answers<pb::CloseSessionReply> {
        self.calls.close(request.into_inner()).await.map(Response::new)
    }

    async fn refresh(&self, request: Request<pb::RefreshRequest>) -> Answers<pb::RefreshReply> {
        self.calls.refresh(request.into_inner()).await.map(Response::new)
    }

    async fn enqueue(&self, request: Request<pb::AcquireRequest>) -> Answers<pb::Reply> {
        let asked = self.calls.filled(request.into_inner()).await.map_err(|error| error_to_status(&error))?;
        self.submit(asked).await
    }

    async fn withdraw(&self, request: Request<pb::WithdrawRequest>) -> Answers<pb::Reply> {
        self.submit(request.into_inner()).await
    }

    async fn command(&self, request: Request<pb::CommandRequest>) -> Answers<pb::Reply> {
        self.submit(request.into_inner()).await
    }

    async fn manage(&self, request: Request<pb::ManageRequest>) -> Answers<pb::Reply> {
        self.submit(request.into_inner()).await
    }

    async fn end_session(&self, request: Request<pb::EndSessionRequest>) -> Answers<pb::Reply> {
        self.submit(request.into_inner()).await
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Answers<pb::RenewReply> {
        let asked = request.into_inner();
        let renewals = renewals(asked).map_err(refused)?;
        let replies = self.service.renew(renewals).await.map_err(|error| error_to_status(&error))?;
        Ok(Response::new(pb::RenewReply { replies: replies.iter().map(Into::into).collect() }))
    }

    async fn wait_outcome(&self, request: Request<pb::WaitOutcomeRequest>) -> Answers<pb::Reply> {
        let claim = ClaimRef::try_from(request.into_inner()).map_err(refused)?;
        let reply = self.until_stopped(self.service.settled(claim)).await?;
        reply_to_answer(&reply).map(Response::new)
    }

    async fn query(&self, request: Request<pb::QueryRequest>) -> Answers<pb::QueryReply> {
        let question = Question::from_wire("question", request.into_inner()).and_then(Question::bounded);
        let Question { query, freshness } = question.map_err(refused)?;
        let answered = self.service.query(query, freshness).await.map_err(|error| error_to_status(&error))?;
        Ok(Response::new(answered.to_wire()))
    }

    async fn watch_tokens(&self, request: Request<pb::WatchTokensRequest>) -> Answers<Self::WatchTokensStream> {
        let pb::WatchTokensRequest { namespace, lock } = request.into_inner();
        let lock = lock_key(&namespace, &lock).map_err(refused)?;
        Ok(Response::new(token_stream(self.service.clone(), lock, self.stop.clone())))
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Answers<Self::WatchStream> {
        let subscription = subscription(request.into_inner()).map_err(refused)?;
        let events = self.until_stopped(self.service.subscribe(subscription)).await?;
        Ok(Response::new(event_stream(events, self.stop.clone())))
    }

    async fn wait(&self, request: Request<pb::WaitRequest>) -> Answers<pb::QueryReply> {
        let pb::WaitRequest { namespace, lock, wait_ms } = request.into_inner();
        let lock = lock_key(&namespace, &lock).map_err(refused)?;
        let waiting = self.free(lock, wait_ms.map(Duration::from_millis));
        Ok(Response::new(self.until_stopped(waiting).await?.to_wire()))
    }
}
