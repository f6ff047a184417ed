//! What a call is, and what each one works with: its caller, the service, and the state that all calls of a node share.

use std::future::Future;
use std::sync::Arc;

use axum::Json;
use axum::extract::RawPathParams;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics::Counter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio::task::yield_now;
use utoipa::ToSchema;

use super::problem::{Decided, Failed, add_point, named};
use crate::client::{Retry, operated, repeated};
use crate::clock::{Clock, SystemClock};
use crate::limits;
use crate::model::{
    Command, Invalid, LockKey, LockName, LogTime, Namespace, Outcome, Page, Part, Query, QueryReply, Reply, SessionId,
    page_rows,
};
use crate::net::{CertificateState, ConnectionInfo, ConnectionsMax, Port, connections_max};
use crate::rpc::claims::DrawnNumbers;
use crate::rpc::{Tasks, stopped};
use crate::service::{
    self, ErrorCode, Freshness, LockService, NotSent, Places, REFUSALS, REQUEST_WAIT, RenewalCall, ServerInfo,
    ServiceError, Source, TakenPlace, only_reply, who_calls,
};
use crate::telemetry::Series;

/// A call: its fields are those of the request's body, or of the query for a `GET`. The comment on the type describes
/// the call to its users.
pub(super) trait Call: DeserializeOwned + ToSchema + Send + 'static {
    const METHOD: Method = Method::POST;
    /// The name of the call, the same as that of the command and of methods in other languages.
    const WORD: &'static str;
    /// The path of the route. `None` if it is the name of the call below the namespace.
    const PATH: Option<&'static str> = None;
    /// The statuses of its answers.
    const STATUSES: &'static [u16] = &[200];
    /// Errors that it may return, besides those that all calls may return.
    const ERRORS: &'static [ErrorCode] = &[];
    type Answer: Serialize + ToSchema + Send;

    /// Returns the path of the route.
    fn path() -> String {
        Self::PATH.map_or_else(|| format!("/v1/ns/{{namespace}}/{}", Self::WORD), str::to_owned)
    }

    /// Does what the call asks for.
    fn answer<S: LockService>(
        self,
        context: &RequestContext<S>,
    ) -> impl Future<Output = Result<Answered<Self::Answer>, Failed>> + Send;
}

/// Errors of calls about a hold that the caller has.
pub(super) const OF_HOLDS: &[ErrorCode] = &[
    ErrorCode::NotAcquired,
    ErrorCode::NotHeld,
    ErrorCode::HeldByOther,
    ErrorCode::AlreadyHeld,
    ErrorCode::KindMismatch,
    ErrorCode::Deadlock,
    ErrorCode::Quota,
    ErrorCode::SessionEnded,
    ErrorCode::WrongHandle,
    ErrorCode::TooOld,
    ErrorCode::RequestReused,
    ErrorCode::Lost,
];

/// An answer, and the point of the log at which it is true; `None` if it names none.
pub(super) struct Answered<T> {
    pub(super) status: StatusCode,
    pub(super) point: Option<(u64, LogTime)>,
    pub(super) value: T,
}

impl<T> Answered<T> {
    /// The answer that is true at this point of the log.
    pub(super) fn at(index: u64, now: LogTime, value: T) -> Self {
        Self { status: StatusCode::OK, point: Some((index, now)), value }
    }

    /// The answer that a reply gives.
    pub(super) fn by(reply: &Reply, value: T) -> Self {
        Self::at(reply.index, reply.stamp, value)
    }

    /// The answer that a query gives.
    pub(super) fn read(reply: &QueryReply, value: T) -> Self {
        Self::at(reply.index, reply.now, value)
    }

    /// An answer that does not depend on the log, or names no point of it.
    pub(super) fn fixed(value: T) -> Self {
        Self { status: StatusCode::OK, point: None, value }
    }
}

impl<T: Serialize> IntoResponse for Answered<T> {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(self.value)).into_response();
        if let Some((index, now)) = self.point {
            add_point(answer.headers_mut(), index, now);
        }
        answer
    }
}

/// What all calls of one node share.
pub(super) struct Api<S> {
    pub(super) service: S,
    pub(super) info: ServerInfo,
    pub(super) clock: Arc<dyn Clock>,
    /// The tasks that withdraw claims of callers that are gone.
    pub(super) tasks: Tasks,
    /// Numbers of requests whose callers name none.
    pub(super) drawn: DrawnNumbers,
    /// Limits the acquires in progress, together with the withdrawals of those whose callers are gone.
    pub(super) claims: Places,
    /// Limits the requests that wait for a lock, together with the streams.
    pub(super) polls: Places,
    /// Counts the requests without a place among these.
    overloaded: Counter,
    /// The turn to read one more part of a listing from this node.
    pub(super) listing: Semaphore,
    /// The HTTP addresses of the other nodes, once the node stops.
    pub(super) others: OnceCell<Vec<String>>,
    /// True once the node stops: then waits end.
    pub(super) stop: watch::Receiver<bool>,
    /// The calls as OpenAPI describes them.
    pub(super) description: Value,
}

/// Returns the service for the caller that the connection or the headers prove.
pub(in crate::http) fn for_caller<S: LockService>(
    service: &S,
    connection: &ConnectionInfo,
    headers: &HeaderMap,
) -> Result<S, ServiceError> {
    let shown = || who_calls(headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes), Some(connection));
    service.for_caller(Source::Connection(connection.id()), connection.from, shown)
}

/// Returns the most requests that wait, and streams: half of the connections that the port may have.
fn polls_max(most: ConnectionsMax) -> usize {
    (connections_max(Port::Http, most) / 2).clamp(1, limits::HTTP_POLLS_MAX)
}

impl<S: LockService> Api<S> {
    /// Creates the calls of a node.
    pub(super) fn new(
        service: S,
        info: ServerInfo,
        tasks: Tasks,
        stop: watch::Receiver<bool>,
        description: Value,
    ) -> Arc<Self> {
        let (drawn, claims) = (DrawnNumbers::new(info.node), Places::new(limits::UNARY_CLAIMS_MAX));
        let (clock, polls) = (Arc::new(SystemClock::new()), Places::new(polls_max(info.connections)));
        let (others, listing) = (OnceCell::new(), Semaphore::new(1));
        let [name, help] = REFUSALS;
        let overloaded = Series::new(info.node).counter(name, help, &[("word", ErrorCode::Overloaded.row().text)]);
        Arc::new(Self {
            service,
            info,
            clock,
            tasks,
            drawn,
            claims,
            polls,
            overloaded,
            listing,
            others,
            stop,
            description,
        })
    }

    pub(super) fn retry(&self) -> Retry {
        Retry::new(Arc::clone(&self.clock), REQUEST_WAIT).of_attempts_within(self.service.answers_within())
    }
}

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A request's caller and the names in its path.
pub(super) struct RequestContext<S> {
    pub(super) api: Arc<Api<S>>,
    /// The service for this caller.
    pub(super) service: S,
    pub(super) namespace: Namespace,
    /// The session that the path names.
    pub(super) session: Option<SessionId>,
    /// The id of the last event that the caller of a stream has received.
    pub(super) last_event: Option<HeaderValue>,
    /// State of the certificate of the connection.
    pub(super) certificate: CertificateState,
}

impl<S: LockService> RequestContext<S> {
    pub(super) fn new(
        api: Arc<Api<S>>,
        service: S,
        params: &RawPathParams,
        headers: &HeaderMap,
        certificate: CertificateState,
    ) -> Result<Self, Failed> {
        let param = |name: &str| params.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        let namespace = param("namespace").map(Namespace::parse).transpose()?.unwrap_or_default();
        let session = named("id", param("id").map(str::parse).transpose())?;
        let last_event = headers.get(LAST_EVENT).cloned();
        Ok(Self { api, service, namespace, session, last_event, certificate })
    }

    /// The lock with this name in the namespace of the path.
    pub(super) fn lock(&self, name: &str) -> Result<LockKey, Invalid> {
        Ok(LockKey { namespace: self.namespace.clone(), name: LockName::parse(name)? })
    }

    /// Submits a command until it is answered. Also returns whether an earlier attempt may have been executed. A
    /// refusal is a reply.
    pub(super) async fn repeated(&self, call: &service::Call) -> Result<(Reply, bool), Failed> {
        Ok(repeated(&self.service, call, &mut self.api.retry()).await?)
    }

    /// Submits the command of an operator, until it is answered.
    pub(super) async fn operated(&self, command: Command) -> Result<Reply, Failed> {
        decided(operated(&self.service, command, &mut self.api.retry()).await?)
    }

    /// Submits a command that may be repeated, until it is answered.
    pub(super) async fn submit(&self, call: service::Call) -> Result<Reply, Failed> {
        decided(self.repeated(&call).await?.0)
    }

    /// Takes one of these places for the caller of the request. Counts a request without one, which the service does
    /// not see.
    ///
    /// # Errors
    /// There is none for it.
    pub(super) fn place(&self, of: &Places) -> Result<TakenPlace, ServiceError> {
        of.take(self.service.caller_source()).inspect_err(|_| self.api.overloaded.increment(1))
    }

    /// Renews a session, a lease or a hold, until it is answered. A refusal is a reply.
    pub(super) async fn renewed(&self, renewal: RenewalCall) -> Result<Reply, Failed> {
        let attempt = || self.service.renew(vec![renewal.clone()]);
        Ok(self.api.retry().until_answered(attempt).await.and_then(only_reply)?)
    }

    /// Answers a query; with the state of this node if `stale`.
    pub(super) async fn query(&self, query: Query, stale: Option<bool>) -> Result<QueryReply, Failed> {
        let freshness = if stale == Some(true) { Freshness::Stale } else { Freshness::Linearizable };
        Ok(self.api.retry().until_read(|| self.service.query(query.clone(), freshness)).await?)
    }

    /// Fills a page from the parts of a listing. `part` reads the part that an answer contains. Also returns the point
    /// of the log of the first part: a caller that watches from there misses nothing. Other requests proceed between
    /// two parts, because a stale query does not wait. For the same reason stale listings take turns after their first
    /// parts: many at once would keep the state of the node from its commands.
    pub(super) async fn page<T, C>(
        &self,
        (rows, stale): (Option<u32>, Option<bool>),
        mut after: Option<C>,
        mut query: impl FnMut(Option<C>, u32) -> Query + Send,
        mut part: impl FnMut(QueryReply) -> Result<Part<T, C>, Failed> + Send,
    ) -> Result<((u64, LogTime), Page<T>), Failed> {
        let (wanted, mut found) = (page_rows(rows.unwrap_or_default()), Vec::new());
        let mut first = None;
        loop {
            let needs_turn = stale == Some(true) && first.is_some();
            let turn = if needs_turn { self.api.listing.acquire().await.ok() } else { None };
            let reply = self.query(query(after, (wanted - found.len()) as u32), stale).await?;
            drop(turn);
            let point = *first.get_or_insert((reply.index, reply.now));
            let Part { rows, next } = part(reply)?;
            found.extend(rows);
            if next.is_none() || found.len() == wanted {
                return Ok((point, Page { rows: found, more: next.is_some() }));
            }
            after = next;
            yield_now().await;
        }
    }

    /// The id of the cluster. A cluster that is being founded has none yet.
    pub(super) fn cluster_id(&self) -> Result<u128, ServiceError> {
        self.api.info.cluster_id.borrow().ok_or_else(|| ServiceError::not_sent(NotSent::NoLeader))
    }

    /// Whether the node stops.
    pub(super) fn stops(&self) -> bool {
        *self.api.stop.borrow()
    }

    /// Waits until the node stops.
    pub(super) async fn stopped(&self) -> Failed {
        stopped(self.api.stop.clone()).await;
        ServiceError::Stopping.into()
    }
}

/// Makes a refusal the error.
pub(super) fn decided(reply: Reply) -> Result<Reply, Failed> {
    if let Outcome::Refused(refusal) = reply.outcome {
        return Err(Failed::refused(refusal, Decided::at(reply.index, reply.stamp)));
    }
    Ok(reply)
}
