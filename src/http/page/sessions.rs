//! The screens with the sessions of a namespace, and with one session.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::layout::{Commands, Layout};
use super::reads::{all_locks, each_lock, each_session, one_session, unexpected};
use super::refused::Refused;
use super::summary::problem;
use super::text::{Client, Link, count, mode, span};
use super::visit::Visit;
use crate::limits;
use crate::model::{About, HolderView, LockKey, LogTime, Query, QueryResult, SessionId, SessionView};
use crate::service::{ErrorCode, LockService};

#[derive(Template)]
#[template(path = "sessions.html", config = "src/http/page/askama.toml")]
struct ListScreen {
    layout: Layout,
    commands: Commands,
    rows: Vec<Row>,
    continued: bool,
    first: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "session.html", config = "src/http/page/askama.toml")]
struct OneScreen {
    layout: Layout,
    commands: Commands,
    sessions: String,
    session: Row,
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    /// Holds and waits that the lists leave out.
    more_holds: u64,
    more_waits: u64,
}

/// One session as a row.
struct Row {
    id: String,
    link: String,
    client: Client,
    age: String,
    ttl: String,
    remaining: String,
    holds: String,
    waits: String,
    /// `good` or `bad`, for its colour.
    level: &'static str,
    /// The same as a sign and a word.
    health: String,
}

/// A lock that a session holds.
struct Hold {
    lock: String,
    link: String,
    token: String,
    mode: String,
    held: String,
}

/// A lock that a session waits for.
struct Wait {
    lock: String,
    link: String,
    place: String,
    mode: String,
    since: String,
    blockers: String,
}

impl Row {
    fn new(view: &SessionView, now: LogTime) -> Self {
        let id = view.session.to_string();
        let problem = problem(view, now);
        Self {
            link: Link::new("/session", &view.namespace).with("id", &id).text(),
            id,
            client: Client::new(&view.metadata),
            age: span(now.ms_since(view.opened)),
            ttl: span(view.ttl_ms),
            remaining: span(view.deadline.ms_since(now)),
            holds: count(view.holds),
            waits: count(view.waits),
            level: if problem.is_some() { "bad" } else { "good" },
            health: problem.map_or("✓ live".to_owned(), |problem| format!("! {problem}")),
        }
    }
}

/// Shows the sessions of a namespace.
pub(super) async fn sessions<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let after = visit.field("after").map(str::parse::<SessionId>).transpose()?;
    let (mut found, mut more) = (Vec::new(), false);
    let look = |row: &SessionView, _| {
        more = found.len() == limits::SCREEN_ROWS;
        if more {
            return ControlFlow::Break(());
        }
        found.push(row.clone());
        ControlFlow::Continue(())
    };
    let (index, now) = each_session(&visit.service, &visit.shared.scans, &visit.namespace, after, look).await?;
    let last = found.last().filter(|_| more).map(|row| row.session.to_string());
    let screen = ListScreen {
        layout: visit.layout("Sessions", index).await?,
        commands: visit.target().call("sessions", "sessions"),
        rows: found.iter().map(|row| Row::new(row, now)).collect(),
        continued: after.is_some(),
        first: visit.link("/sessions").text(),
        next: last.map(|last| visit.link("/sessions").with("after", &last).text()),
    };
    Ok(visit.show(&screen))
}

/// Shows one session.
pub(super) async fn session<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let id: SessionId = visit.field("id").unwrap_or_default().parse()?;
    let (view, index, now) = one_session(&visit.service, &visit.namespace, id).await?;
    let Some(view) = view else {
        let why = format!("namespace {} has no open session {id}: it has ended, or was never opened", visit.namespace);
        let next = "The history of a lock shows what became of its holds.";
        // For the service it was a list without a row.
        return Err(Refused::new(StatusCode::NOT_FOUND, why, next).counted(ErrorCode::SessionEnded));
    };
    let (holds, waits) = (holds(&visit, &view).await?, waits(&visit, &view).await?);
    let screen = OneScreen {
        layout: visit.layout("Sessions", index).await?,
        commands: visit.target().call(&format!("explain --session {id}"), &format!("sessions/{id}")),
        sessions: visit.link("/sessions").text(),
        more_holds: view.holds.saturating_sub(holds.len() as u64),
        more_waits: view.waits.saturating_sub(waits.len() as u64),
        session: Row::new(&view, now),
        holds,
        waits,
    };
    Ok(visit.show(&screen))
}

/// Finds the locks that a session holds: among the oldest holders of all locks, and then among the other holders of
/// some locks.
async fn holds<S: LockService>(visit: &Visit<S>, view: &SessionView) -> Result<Vec<Hold>, Refused> {
    let wanted = limits::SCREEN_ROWS.min(usize::try_from(view.holds).unwrap_or(usize::MAX));
    let (mut found, mut shared) = (Vec::new(), BTreeSet::new());
    if wanted == 0 {
        return Ok(found);
    }
    each_lock(&visit.service, &visit.shared.scans, all_locks(&visit.namespace), |row, now| {
        match &row.oldest {
            Some(holder) if holder.session == Some(view.session) => found.push(hold(&row.lock, holder, now)),
            Some(_) if 1 < row.holders && shared.len() < limits::SHARED_LOCKS_READ_MAX => {
                shared.insert(row.lock.clone());
            }
            Some(_) | None => {}
        }
        if found.len() < wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .await?;
    for lock in shared {
        if found.len() == wanted {
            break;
        }
        let reply = visit.read(Query::Holders { lock: lock.clone() }).await?;
        let QueryResult::Lock(shown) = reply.answer else { return Err(unexpected().into()) };
        let own = shown.holders.iter().filter(|holder| holder.session == Some(view.session));
        found.extend(own.map(|holder| hold(&lock, holder, reply.now)));
        tokio::task::yield_now().await;
    }
    found.truncate(limits::SCREEN_ROWS);
    Ok(found)
}

fn hold(lock: &LockKey, holder: &HolderView, now: LogTime) -> Hold {
    Hold {
        lock: lock.name.to_string(),
        link: Link::lock(&lock.namespace, &lock.name).text(),
        token: holder.token.to_string(),
        mode: mode(holder.mode),
        held: span(now.ms_since(holder.since)),
    }
}

/// Returns what a session waits for.
async fn waits<S: LockService>(visit: &Visit<S>, view: &SessionView) -> Result<Vec<Wait>, Refused> {
    if view.waits == 0 {
        return Ok(Vec::new());
    }
    let reply = visit.read(Query::Explain(About::Session(view.session))).await?;
    let QueryResult::Explained(explanation) = reply.answer else { return Err(unexpected().into()) };
    let own = explanation.chain.iter().filter(|wait| wait.waiter.session == Some(view.session));
    Ok(own
        .map(|wait| {
            let blockers: Vec<_> = wait.waits_for.iter().map(|one| one.who.metadata.name().into_owned()).collect();
            Wait {
                lock: wait.lock.name.to_string(),
                link: Link::lock(&wait.lock.namespace, &wait.lock.name).text(),
                place: count(wait.place),
                mode: mode(wait.waiter.mode),
                since: span(reply.now.ms_since(wait.waiter.since)),
                blockers: blockers.join(", "),
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use axum::response::IntoResponse;
    use tokio::sync::watch;

    use super::super::shared::Shared;
    use super::*;
    use crate::http::api::RefusedByPort;
    use crate::net::ConnectionInfo;
    use crate::testing::Cluster;

    /// The screen of a session that has ended is a refusal, and the metrics count it as such.
    #[tokio::test]
    async fn the_screen_of_an_ended_session_is_a_counted_refusal() {
        let cluster = Cluster::start(1, None).await.expect("started");
        let (node, (_stop, stopped)) = (cluster.leader().await, watch::channel(false));
        let shared = Shared::new(node.service(), node.info(), false, Arc::new(String::new), stopped);
        let request = Request::get("/session?id=999").extension(ConnectionInfo::new(None, false, None));
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let visit = Visit::from_request_parts(&mut parts, &shared).await.expect("a caller");
        let refused = session(visit).await.expect_err("no session").into_response();
        assert_eq!(refused.status(), StatusCode::NOT_FOUND);
        let counted = refused.extensions().get::<RefusedByPort>().map(|RefusedByPort(code)| *code);
        assert_eq!(counted, Some(ErrorCode::SessionEnded));
    }
}
