//! Sessions: opened, renewed, closed, listed, and ended by an operator.

use axum::http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::from_text;
use super::call::{Answered, Call, RequestContext, decided};
use super::fields::{Ends, instance, metadata, needed, session};
use super::problem::{Failed, named};
use crate::client::default_ttl_ms;
use crate::model::{
    Command, EndSession, Handle, OpenSession, Outcome, Page, Part, Query, QueryReply, QueryResult, Reason,
    RenewalTarget, SessionClose, SessionId,
};
use crate::service::{self, ErrorCode, LockService, RenewalCall};
use crate::shapes::{EndedSession, Session};

/// Opens a session. It ends `ttl_ms` after its last renewal, and all its holds end with it. The same handle and
/// instance get the same session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ttl_ms": 10_000, "who": "ann"}))]
pub(super) struct OpenBody {
    /// The secret that will prove the session. Default: a random one.
    handle: Option<String>,
    /// A UUID that names the run of the program. Another run with the same handle is refused.
    instance: Option<String>,
    ttl_ms: Option<u64>,
    /// Whether it takes over holds that are handed to it although it did not ask for them.
    accepts_hand_over: Option<bool>,
    /// Name of the client, for display.
    who: Option<String>,
    /// Purpose, for display.
    why: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    process: Option<String>,
    trace: Option<String>,
}

/// The open session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Opened {
    /// Public id of the session.
    session: String,
    handle: String,
    ttl_ms: u64,
    #[serde(flatten)]
    ends: Ends,
}

impl Call for OpenBody {
    const PATH: Option<&str> = Some("/v1/ns/{namespace}/sessions");
    const WORD: &'static str = "open";
    const STATUSES: &'static [u16] = &[201];
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::AlreadyOpen, ErrorCode::SessionEnded, ErrorCode::Quota];
    type Answer = Opened;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Opened>, Failed> {
        let ttl_ms = match self.ttl_ms {
            Some(ttl_ms) => ttl_ms,
            None => default_ttl_ms(context.service.status().await?.ttl_ms_min),
        };
        let handle = self.handle.unwrap_or_else(|| context.drawn_handle());
        let open = OpenSession {
            namespace: context.namespace.clone(),
            handle: Handle::parse(&handle)?,
            instance: instance(self.instance.as_deref())?,
            ttl_ms,
            disconnect_grace_ms: None,
            metadata: metadata([self.who, self.why, self.host, self.process, self.trace], self.pid),
            accepts_hand_over: self.accepts_hand_over.unwrap_or_default(),
        };
        let reply = context.submit(service::Call::new(Command::OpenSession(open))).await?;
        let Outcome::Opened { session, ttl_ms, deadline } = reply.outcome else {
            return Err(Failed::unexpected(reply.outcome));
        };
        let ends = Ends::new(reply.stamp, deadline);
        let opened = Opened { session: session.to_string(), handle, ttl_ms, ends };
        Ok(Answered { status: StatusCode::CREATED, ..Answered::by(&reply, opened) })
    }
}

/// Renews a session: its end is the TTL from now.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"session": "41", "handle": "c0ffee", "attempt": 7}))]
pub(super) struct RenewBody {
    session: String,
    handle: String,
    /// Count of the caller's renewals. A lower one than the last applied changes nothing. Default: none is counted.
    attempt: Option<u64>,
}

/// The renewed session and its new end.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Renewed {
    session: String,
    attempt: u64,
    #[serde(flatten)]
    ends: Ends,
}

impl Call for RenewBody {
    const WORD: &'static str = "renew";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::SessionEnded, ErrorCode::WrongHandle];
    type Answer = Renewed;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Renewed>, Failed> {
        let (session, proof) = context.proven(&self.session, &self.handle)?;
        let (target, attempt) = (RenewalTarget::Session(session), self.attempt.unwrap_or_default());
        let reply = decided(context.renewed(RenewalCall { target, proof, attempt }).await?)?;
        let Outcome::Renewed { deadline, attempt, .. } = reply.outcome else {
            return Err(Failed::unexpected(reply.outcome));
        };
        let ends = Ends::new(reply.stamp, deadline);
        Ok(Answered::by(&reply, Renewed { session: session.to_string(), attempt, ends }))
    }
}

/// Closes a session: all that it holds is released, and its waiters leave their queues.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"handle": "c0ffee"}))]
pub(super) struct CloseBody {
    handle: String,
    /// Whether the client found that its own deadline had passed, so that lock-delays begin.
    lost: Option<bool>,
}

/// The answer to a close.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClosedSession {
    /// This is always true.
    closed: bool,
}

impl Call for CloseBody {
    const PATH: Option<&str> = Some("/v1/ns/{namespace}/sessions/{id}/close");
    const WORD: &'static str = "close";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::SessionEnded, ErrorCode::WrongHandle];
    type Answer = ClosedSession;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<ClosedSession>, Failed> {
        let session = needed("in the path", "id", context.session)?;
        let end = if self.lost == Some(true) { SessionClose::Lost } else { SessionClose::Done };
        let (command, proof) = (Command::CloseSession { session, end }, context.proof(&self.handle)?);
        let reply = context.submit(service::Call { proof, ..service::Call::new(command) }).await?;
        let Outcome::Closed = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        Ok(Answered::by(&reply, ClosedSession { closed: true }))
    }
}

/// Ends a session of another client: its holds are broken, and its client gets the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"why": "its host is dead"}))]
pub(super) struct EndBody {
    /// Reason, shown to the client and in the history.
    why: String,
}

impl Call for EndBody {
    const PATH: Option<&str> = Some("/v1/ns/{namespace}/sessions/{id}/end");
    const WORD: &'static str = "end";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::SessionEnded];
    type Answer = EndedSession;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<EndedSession>, Failed> {
        let session = needed("in the path", "id", context.session)?;
        let end = EndSession { namespace: context.namespace.clone(), session, why: Reason::parse(&self.why)? };
        let reply = context.operated(Command::EndSession(end)).await?;
        let Outcome::Closed = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        Ok(Answered::by(&reply, EndedSession { session: session.to_string(), ended: true }))
    }
}

/// Lists the sessions of the namespace, one page at a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"rows": "100"}))]
pub(super) struct SessionsQuery {
    /// The last session of the previous page.
    after: Option<String>,
    /// Largest number of rows, at most 1,000.
    #[serde(default, deserialize_with = "from_text")]
    rows: Option<u32>,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

/// A page of sessions, in the order of their ids.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionPage {
    sessions: Vec<Session>,
    /// Whether more rows follow after the last one.
    more: bool,
}

impl Call for SessionsQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "sessions";
    type Answer = SessionPage;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<SessionPage>, Failed> {
        let after = named("after", self.after.as_deref().map(session).transpose())?;
        let query = |after, rows| Query::Sessions { namespace: context.namespace.clone(), after, rows };
        let part = |reply: QueryReply| {
            let QueryResult::Sessions(part) = reply.answer else { return Err(Failed::unexpected(reply.answer)) };
            let rows = part.rows.iter().map(|view| Session::new(view, reply.now)).collect();
            Ok(Part { rows, next: part.next })
        };
        let ((index, now), Page { rows, more }) = context.page((self.rows, self.stale), after, query, part).await?;
        Ok(Answered::at(index, now, SessionPage { sessions: rows, more }))
    }
}

/// Shows one session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct SessionQuery {
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

impl Call for SessionQuery {
    const METHOD: Method = Method::GET;
    const PATH: Option<&str> = Some("/v1/ns/{namespace}/sessions/{id}");
    const WORD: &'static str = "session";
    type Answer = Session;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Session>, Failed> {
        one(context, needed("in the path", "id", context.session)?, self.stale).await
    }
}

/// Reads a session of the namespace of the path.
pub(super) async fn one<S: LockService>(
    context: &RequestContext<S>,
    id: SessionId,
    stale: Option<bool>,
) -> Result<Answered<Session>, Failed> {
    // A page begins after a session, so this one begins after the id before it.
    let before = SessionId::from_u64(id.as_u64() - 1).ok();
    let query = Query::Sessions { namespace: context.namespace.clone(), after: before, rows: 1 };
    let reply = context.query(query, stale).await?;
    let QueryResult::Sessions(part) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
    let found = part.rows.iter().find(|view| view.session == id).map(|view| Session::new(view, reply.now));
    let missing = || {
        let bound = format!("an open session of namespace {}", context.namespace.as_str());
        Failed::malformed(StatusCode::NOT_FOUND, "id", &bound, &id.to_string())
    };
    Ok(Answered::read(&reply, found.ok_or_else(missing)?))
}
