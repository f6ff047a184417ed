//! Acts on the locks of others: asking a holder for a lock, and breaking a hold. Each has a form, which names the grant
//! by its token, so that a newer holder is never affected.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;

use super::escape::seen;
use super::forms::Form;
use super::layout::{Layout, html};
use super::reads::unexpected;
use super::refused::Refused;
use super::shared::Shared;
use super::sign_ins::SignIn;
use super::text::{Client, Link, operand, span};
use super::visit::{Visit, sign_in_link};
use crate::client::{Retry, operated};
use crate::http::api::RefusedByPort;
use crate::limits;
use crate::model::{
    BreakReport, Command, FencingToken, LockKey, LogTime, Manage, Managing, Outcome, Query, QueryResult, Reason,
    Refusal,
};
use crate::service::{ErrorCode, Freshness, LockService, REQUEST_WAIT, ServiceError};

#[derive(Template)]
#[template(path = "act.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    breaks: bool,
    lock: String,
    lock_link: String,
    token: String,
    /// Where the form is sent.
    action: String,
    secret: String,
    why: String,
    why_max: usize,
    /// What the break would do, or did.
    report: Option<Report>,
    /// Why the form was refused; may be empty.
    refused: String,
    done: bool,
    /// The command that does the same.
    command: String,
}

/// What a break does.
struct Report {
    holder: Client,
    held: String,
    last_seen: String,
    next: Option<Client>,
}

impl Report {
    fn new(report: &BreakReport, now: LogTime) -> Self {
        let last_seen = report.last_seen.map(|seen| span(now.ms_since(seen)));
        Self {
            holder: Client::new(&report.holder.metadata),
            held: span(now.ms_since(report.holder.since)),
            last_seen: last_seen.map_or("a lease, which no session renews".to_owned(), |ago| format!("{ago} ago")),
            next: report.next.as_ref().map(|waiter| Client::new(&waiter.metadata)),
        }
    }
}

/// What a form is about, and the sign-in that may send it.
struct Act {
    breaks: bool,
    lock: LockKey,
    token: FencingToken,
    sign_in: SignIn,
}

impl Act {
    /// Reads what the query names. Refuses callers that have not signed in, or too long ago.
    fn new<S: LockService>(visit: &Visit<S>, breaks: bool) -> Result<Self, Refused> {
        if !visit.shared.service.knows_callers() {
            let why = "this cluster does not know its callers, so the page only shows";
            let next = "Use the command line, or give the cluster a file of rules.";
            return Err(Refused::new(StatusCode::FORBIDDEN, why, next).counted(ErrorCode::NotPermitted));
        }
        let lock = visit.lock()?;
        let token = visit.field("token").unwrap_or_default().parse()?;
        let now = visit.shared.clock.now();
        let Some(sign_in) = visit.sign_in.clone().filter(|sign_in| sign_in.may_act(now)) else {
            return Err(Refused::Moved(sign_in_link(&visit.arrival.path)));
        };
        Ok(Self { breaks, lock, token, sign_in })
    }

    fn word(&self) -> &'static str {
        if self.breaks { "break" } else { "ask" }
    }

    /// Returns what the secret of the form is bound to.
    fn about(&self) -> [String; 4] {
        let LockKey { namespace, name } = &self.lock;
        [self.word().to_owned(), namespace.to_string(), name.to_string(), self.token.to_string()]
    }

    fn screen<S: LockService>(&self, visit: &Visit<S>, layout: Layout) -> Screen {
        let (name, token) = (self.lock.name.to_string(), self.token.to_string());
        let action = visit.link(&format!("/{}", self.word())).with("lock", &name).with("token", &token).text();
        Screen {
            layout: Layout { live: false, ..layout },
            breaks: self.breaks,
            lock_link: Link::lock(&self.lock.namespace, &self.lock.name).text(),
            action,
            secret: self.sign_in.form_secret(&self.about()),
            why: String::new(),
            why_max: limits::REASON_BYTES_MAX,
            report: None,
            refused: String::new(),
            done: false,
            command: visit.target().cli(&format!("{} {} {token} 'REASON'", self.word(), operand(&name))),
            lock: name,
            token,
        }
    }
}

/// Returns the routes of both acts. A `GET` shows the form, and a `POST` does what the form says.
pub(super) fn routes<S: LockService>() -> Router<Arc<Shared<S>>> {
    let screens = |breaks| {
        get(move |visit: Visit<S>| form(visit, breaks))
            .post(move |visit: Visit<S>, headers: HeaderMap, body: Body| act(visit, breaks, headers, body))
    };
    Router::new().route("/ask", screens(false)).route("/break", screens(true))
}

/// Shows the form of an act. That of a break also shows what the break would do.
async fn form<S: LockService>(visit: Visit<S>, breaks: bool) -> Result<Response, Refused> {
    let act = Act::new(&visit, breaks)?;
    let layout = visit.layout("Locks", None).await?;
    let report = if breaks { Some(would_break(&visit, &act).await?) } else { None };
    Ok(visit.show(&Screen { report, ..act.screen(&visit, layout) }))
}

/// Asks the leader what a break would do now.
async fn would_break<S: LockService>(visit: &Visit<S>, act: &Act) -> Result<Report, Refused> {
    let query = Query::WouldBreak { lock: act.lock.clone(), token: act.token };
    let attempt = || visit.service.query(query.clone(), Freshness::Linearizable);
    let reply = retry(visit).until_read(attempt).await?;
    let QueryResult::WouldBreak(outcome) = reply.answer else { return Err(unexpected().into()) };
    if let Outcome::Refused(refusal) = outcome {
        return Err(gone(act, refusal));
    }
    let Outcome::Broken(report) = outcome else { return Err(unexpected().into()) };
    Ok(Report::new(&report, reply.now))
}

fn retry<S: LockService>(visit: &Visit<S>) -> Retry {
    let shared = &visit.shared;
    Retry::new(Arc::clone(&shared.clock), REQUEST_WAIT).of_attempts_within(shared.service.answers_within())
}

/// The refusal of an act whose grant is gone, or that the caller may not do.
fn gone(act: &Act, refusal: Refusal) -> Refused {
    let is_gone = refusal.hold_is_gone();
    let error = ServiceError::from(refusal);
    let link = Link::lock(&act.lock.namespace, &act.lock.name);
    if !is_gone {
        return Refused::from(error).about(link);
    }
    let next = "The hold that the form was about has ended. What another client does now is not affected.";
    Refused::new(StatusCode::CONFLICT, error.to_string(), next).about(link)
}

/// Does what a form says, or shows the form again with what is wrong.
async fn act<S: LockService>(
    visit: Visit<S>,
    breaks: bool,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let act = Act::new(&visit, breaks)?;
    let form = Form::read(&visit.arrival, &headers, body).await?;
    if !act.sign_in.proves(&act.about(), form.field("secret")) {
        let why = "the form is not one that this sign-in was shown for this grant";
        let next = "Open the form again from the page of the lock.";
        return Err(Refused::new(StatusCode::FORBIDDEN, why, next).counted(ErrorCode::NotPermitted));
    }
    let layout = visit.layout("Locks", None).await?;
    let (why, typed, name) = (form.field("why"), form.exact("typed"), act.lock.name.as_str());
    let reason = Reason::parse(why);
    let refused = match &reason {
        Err(invalid) => format!("The reason was refused: {invalid}."),
        Ok(_) if breaks && typed != name && typed != seen(name) => {
            "The typed name is not the name of the lock: nothing was done.".to_owned()
        }
        Ok(_) => String::new(),
    };
    if let (Ok(reason), true) = (reason, refused.is_empty()) {
        let report = submit(&visit, &act, reason).await?;
        return Ok(visit.show(&Screen { report, done: true, ..act.screen(&visit, layout) }));
    }
    let report = if breaks { Some(would_break(&visit, &act).await?) } else { None };
    let why = why.to_owned();
    let mut answer = html(StatusCode::BAD_REQUEST, &Screen { refused, report, why, ..act.screen(&visit, layout) });
    answer.extensions_mut().insert(RefusedByPort(ErrorCode::Invalid));
    Ok(answer)
}

/// Submits an act, and returns what a break did.
async fn submit<S: LockService>(visit: &Visit<S>, act: &Act, why: Reason) -> Result<Option<Report>, Refused> {
    let token = act.token;
    let what = if act.breaks { Managing::BreakHold { token, why } } else { Managing::Ask { token, why } };
    let command = Command::Manage(Manage { lock: act.lock.clone(), what });
    let failed = |error| Refused::of_act(error).about(Link::lock(&act.lock.namespace, &act.lock.name));
    let reply = operated(&visit.service, command, &mut retry(visit)).await.map_err(failed)?;
    if let Outcome::Refused(refusal) = reply.outcome {
        return Err(gone(act, refusal));
    }
    if reply.outcome == Outcome::Done {
        return Ok(None);
    }
    let Outcome::Broken(report) = reply.outcome else { return Err(unexpected().into()) };
    Ok(Some(Report::new(&report, reply.stamp)))
}
