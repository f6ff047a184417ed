//! The `Locks` service: converts each call, submits it, and converts the answer; each stream gets its own task.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, pending};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::caller::OfCallers;
use super::calls::Calls;
use super::stream::{Outgoing, SessionStream};
use super::token_watch::{TokenStream, token_stream};
use crate::limits;
use crate::model::{Position, Query, QueryResult};
use crate::net::ConnectionInfo;
use crate::rpc::background::{Tasks, stopped};
use crate::rpc::claims::free;
use crate::rpc::convert::{Question, Wire, required};
use crate::rpc::pb;
use crate::rpc::pb::command::Command as Asked;
use crate::rpc::pb::query_request::Query as AskedQuery;
use crate::service::{Events, Freshness, LockService, Scope, ServerInfo, ServiceError, Subscription, TakenPlace};

/// The `Locks` service on top of a lock service.
pub(in crate::rpc) struct Locks<S> {
    service: OfCallers<S>,
    info: ServerInfo,
    /// True once the node stops: then calls without a time limit end.
    stop: watch::Receiver<bool>,
    tasks: Tasks,
    calls: Calls<OfCallers<S>>,
    /// Number of streams so far.
    streams: AtomicU64,
}

type Answers<T> = Result<Response<T>, Status>;

impl<S: LockService> Locks<S> {
    pub(in crate::rpc) fn new(
        service: OfCallers<S>,
        info: ServerInfo,
        stop: watch::Receiver<bool>,
        tasks: Tasks,
    ) -> Self {
        let calls = Calls::new(service.clone(), tasks.clone(), info.node);
        Self { service, info, stop, tasks, calls, streams: AtomicU64::new(0) }
    }

    /// Runs a call without a deadline until the node stops.
    async fn until_stopped<T>(&self, work: impl Future<Output = Result<T, ServiceError>>) -> Result<T, Status> {
        tokio::select! {
            answered = work => Ok(answered?),
            () = stopped(self.stop.clone()) => Err(ServiceError::Stopping.into()),
        }
    }

    /// Answers a query with a linearizable read.
    async fn answered<T>(&self, request: Request<T>, query: impl FnOnce(T) -> AskedQuery) -> Answers<pb::QueryReply> {
        let service = self.service.of(&request)?;
        let query = Some(query(request.into_inner()));
        questioned(&service, pb::QueryRequest { query, ..Default::default() }).await
    }
}

async fn questioned<S: LockService>(service: &S, asked: pb::QueryRequest) -> Answers<pb::QueryReply> {
    let Question { query, freshness } = Wire::from_wire("question", asked)?;
    // The log of a node that lags may end before that of another one.
    let after =
        if let (Query::History { after, .. }, Freshness::Linearizable) = (&query, freshness) { *after } else { None };
    let reply = service.query(query, freshness).await?;
    if let (Some(after), QueryResult::History(page)) = (after, &reply.answer) {
        within(after, reply.index, page.floor)?;
    }
    Ok(Response::new(reply.to_wire()))
}

/// Refuses a position after the last entry, as of a log that was lost: events would be missed without notice. The error
/// names `resume`.
fn within(after: Position, last: u64, resume: Position) -> Result<(), ServiceError> {
    if after.index <= last {
        return Ok(());
    }
    let why = format!("the position is after entry {last}, the last one of this cluster");
    Err(ServiceError::EventsMissed { why, resume })
}

/// Refuses a position after the end of the log. Asks the leader only if this node has not applied that entry. Without
/// an answer of the leader the position is accepted: a node that lags behind the caller still streams the later events.
async fn reached<S: LockService>(service: &S, after: Position) -> Result<(), ServiceError> {
    let mut last = 0;
    for freshness in [Freshness::Stale, Freshness::Linearizable] {
        if last < after.index {
            last = match service.query(Query::Totals, freshness).await {
                Ok(reply) => reply.index,
                Err(ServiceError::NotSent { .. } | ServiceError::Unknown { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
    }
    within(after, last, Position { index: last, n: u32::MAX })
}

/// Streams events until the subscription ends, the node stops, or `cut_off` returns. The stream of a session keeps its
/// place, and returns its unread events first, because it has no position from which to continue.
fn event_stream(
    events: Events,
    place: Option<TakenPlace>,
    cut_off: impl Future<Output = ServiceError> + Send + 'static,
    stop: watch::Receiver<bool>,
) -> EventStream {
    let running = Some((events, place, Box::pin(cut_off), stop));
    Box::pin(stream::unfold(running, |running| async move {
        let (mut events, place, mut cut_off, mut stop) = running?;
        if place.is_none() && *stop.borrow() {
            return Some((Err(ServiceError::Stopping.into()), None));
        }
        let next = tokio::select! {
            biased;
            next = events.next() => next,
            error = &mut cut_off => Err(error),
            _ = stop.wait_for(|stopped| *stopped) => Err(ServiceError::Stopping),
        };
        Some(match next {
            Ok(event) => (Ok(event.to_wire()), Some((events, place, cut_off, stop))),
            Err(error) => (Err(error.into()), None),
        })
    }))
}

/// The outgoing frames of a session's stream.
type Frames = stream::Map<ReceiverStream<Outgoing>, fn(Outgoing) -> Result<pb::ServerFrame, Status>>;

type EventStream = Pin<Box<dyn Stream<Item = Result<pb::Event, Status>> + Send>>;

#[tonic::async_trait]
impl<S: LockService> pb::locks_server::Locks for Locks<S> {
    type SessionStream = Frames;
    type WatchStream = EventStream;
    type WatchTokensStream = TokenStream;

    async fn session(&self, request: Request<Streaming<pb::ClientFrame>>) -> Answers<Self::SessionStream> {
        let (outgoing, frames) = mpsc::channel(limits::STREAM_FRAMES_WAITING_MAX);
        let service = self.service.of(&request)?;
        let certificate = request.extensions().get().map(|info: &ConnectionInfo| info.certificate.clone());
        let (info, stop, certificate) = (self.info.clone(), self.stop.clone(), certificate.unwrap_or_default());
        let stream = SessionStream::new(service, info, stop, certificate, outgoing);
        self.tasks.run(stream.run(self.streams.fetch_add(1, Ordering::Relaxed), request.into_inner()));
        Ok(Response::new(ReceiverStream::new(frames).map(|frame: Outgoing| frame.map(|frame| *frame))))
    }

    async fn open_session(&self, request: Request<pb::OpenSession>) -> Answers<pb::OpenSessionReply> {
        self.calls.of(&request)?.open(request.into_inner()).await.map(Response::new)
    }

    async fn keep_alive(&self, request: Request<pb::KeepAliveRequest>) -> Answers<pb::KeepAliveReply> {
        self.calls.of(&request)?.keep_alive(request.into_inner()).await.map(Response::new)
    }

    async fn acquire(&self, request: Request<pb::AcquireRequest>) -> Answers<pb::AcquireReply> {
        self.calls.of(&request)?.acquire(request.into_inner(), stopped(self.stop.clone())).await.map(Response::new)
    }

    async fn refresh(&self, request: Request<pb::RefreshRequest>) -> Answers<pb::KeepAliveReply> {
        self.calls.of(&request)?.refresh(request.into_inner()).await.map(Response::new)
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Answers<pb::Reply> {
        self.calls.of(&request)?.release(request.into_inner()).await.map(Response::new)
    }

    async fn close_session(&self, request: Request<pb::CloseSession>) -> Answers<pb::Reply> {
        self.calls.of(&request)?.answered(Asked::CloseSession(request.into_inner())).await.map(Response::new)
    }

    async fn check(&self, request: Request<pb::TokenOf>) -> Answers<pb::QueryReply> {
        self.answered(request, AskedQuery::Check).await
    }

    async fn inspect(&self, request: Request<pb::LockKey>) -> Answers<pb::QueryReply> {
        self.answered(request, AskedQuery::Inspect).await
    }

    async fn list(&self, request: Request<pb::ListFilter>) -> Answers<pb::QueryReply> {
        self.answered(request, AskedQuery::List).await
    }

    async fn explain(&self, request: Request<pb::About>) -> Answers<pb::QueryReply> {
        self.answered(request, AskedQuery::Explain).await
    }

    async fn submit(&self, request: Request<pb::Command>) -> Answers<pb::Reply> {
        let calls = self.calls.of(&request)?;
        let asked = required("command", request.into_inner().command)?;
        calls.submit(asked).await.map(Response::new)
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Answers<pb::RenewReply> {
        let service = self.service.of(&request)?;
        let renewals = Wire::from_wire("renewals", request.into_inner().renewals)?;
        let replies = service.renew(renewals).await?;
        Ok(Response::new(pb::RenewReply { replies: replies.to_wire() }))
    }

    async fn wait_outcome(&self, request: Request<pb::WaitOutcomeRequest>) -> Answers<pb::Reply> {
        let calls = self.calls.of(&request)?;
        calls.wait_outcome(request.into_inner(), stopped(self.stop.clone())).await.map(Response::new)
    }

    async fn query(&self, request: Request<pb::QueryRequest>) -> Answers<pb::QueryReply> {
        questioned(&self.service.of(&request)?, request.into_inner()).await
    }

    async fn watch_tokens(&self, request: Request<pb::WatchTokensRequest>) -> Answers<Self::WatchTokensStream> {
        let service = self.service.of(&request)?;
        let lock = Wire::from_wire("lock", request.into_inner().lock)?;
        Ok(Response::new(token_stream(service, lock, self.stop.clone())))
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Answers<Self::WatchStream> {
        let service = self.service.of(&request)?;
        let calls = self.calls.of(&request)?;
        let subscription = Subscription::from_wire("watch", request.into_inner())?;
        // The node itself counts and ends the other watches. Each stream of a session watches that session,
        // uncounted.
        let of_session = matches!(subscription.scope, Scope::SessionEnd(_) | Scope::Holds(_));
        let place = of_session.then(|| calls.place()).transpose()?;
        let after = subscription.after.filter(|_| !of_session);
        let events = self.until_stopped(service.subscribe(subscription)).await?;
        if let Some(after) = after {
            self.until_stopped(reached(&service, after)).await?;
        }
        let cut_off = if of_session { Either::Left(self.info.cut_off()) } else { Either::Right(pending()) };
        Ok(Response::new(event_stream(events, place, cut_off, self.stop.clone())))
    }

    async fn wait(&self, request: Request<pb::WaitRequest>) -> Answers<pb::QueryReply> {
        let service = self.service.of(&request)?;
        let pb::WaitRequest { lock, wait_ms } = request.into_inner();
        let lock = Wire::from_wire("lock", lock)?;
        let waiting = free(&service, lock, wait_ms.map(Duration::from_millis));
        Ok(Response::new(self.until_stopped(waiting).await?.to_wire()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::model::{EndReason, Event, EventKind, LogTime, SessionId, Subject, WallTime};
    use crate::rpc::fake::Fake;
    use crate::service::NotSent;

    fn session_ended() -> Event {
        let (position, subject) = (Position { index: 11, n: 0 }, Subject::Session(SessionId::new(0, 7)));
        let kind = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
        Event { position, at: LogTime(1), wall: WallTime(2), namespace: None, subject, kind }
    }

    /// A stream that is read late at a node without a leader still returns its unread events, and then the error.
    #[tokio::test]
    async fn unread_events_come_before_the_error() {
        // A choice at random would sometimes be right.
        for _ in 0..64 {
            let (sender, events) = Events::channel(4);
            assert!(sender.try_send(session_ended()));
            let (_stop, stopped) = watch::channel(false);
            let cut_off = ready(ServiceError::not_sent(NotSent::NoLeader));
            let mut stream = event_stream(events, None, cut_off, stopped);
            assert_eq!(stream.next().await.expect("an event").expect("no error"), session_ended().to_wire());
            assert!(stream.next().await.expect("an end").is_err(), "the node has no leader");
        }
    }

    /// While there is no leader, a client continues after an event that this node has not applied yet, and its stream
    /// begins. Once a leader answers, a position after the end of the log is refused.
    #[tokio::test]
    async fn a_position_is_accepted_while_there_is_no_leader() {
        let (service, _calls) = Fake::new();
        let after = Position { index: 100, n: 0 };
        service.lose_leader_for(1);
        assert_eq!(reached(&service, after).await, Ok(()));
        service.lose_leader_for(0);
        assert!(matches!(reached(&service, after).await, Err(ServiceError::EventsMissed { .. })));
    }
}
