//! The screen of one lock: its holders, its queue, why a waiter waits, the timeline and the history.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;

use super::layout::{Commands, Layout};
use super::reads::{newest, unexpected};
use super::records::{self, Row};
use super::refused::Refused;
use super::text::{Client, Link, clock, count, mode, operand, several, span};
use super::timeline::Timeline;
use super::visit::Visit;
use super::walls::Walls;
use super::why::{Reason, reasons};
use crate::limits;
use crate::model::{
    About, ExplainedWait, Explanation, FencingToken, Health, HolderView, LockKey, LockView, LogTime, Query,
    QueryResult, SessionId, WaiterView, WallTime,
};
use crate::service::LockService;

#[derive(Template)]
#[template(path = "lock.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    commands: Commands,
    locks: String,
    name: String,
    /// Its kind and counts in one line.
    line: String,
    value: String,
    holders: Vec<Holder>,
    more_holders: u64,
    closed: Vec<String>,
    waiters: Vec<Waiter>,
    /// Waiters after those that are shown, and the link to them.
    more_waiters: u64,
    next: Option<String>,
    first: Option<String>,
    reasons: Vec<Reason>,
    more_reasons: bool,
    timeline: Timeline,
    records: Vec<Row>,
    more_records: bool,
    history: String,
}

/// One holder as a row.
struct Holder {
    client: Client,
    session: Option<(String, String)>,
    principal: String,
    token: String,
    mode: String,
    /// When it began, by the wall clock.
    clock: String,
    held: String,
    /// When it ends unless it is renewed; may be empty.
    ends: String,
    /// `good` or `bad`, for its colour; nothing if no session shows it.
    level: &'static str,
    health: &'static str,
    /// The links to the forms that ask for the lock, and that break the hold.
    acts: Option<(String, String)>,
}

/// One waiter as a row.
struct Waiter {
    place: String,
    client: Client,
    session: Option<(String, String)>,
    mode: String,
    waited: String,
    /// How long it continues to wait; may be empty.
    gives_up: String,
}

/// Everything that the service says of a lock.
struct Known {
    index: u64,
    now: LogTime,
    wall: WallTime,
    view: LockView,
    explanation: Explanation,
}

/// Shows one lock.
pub(super) async fn lock<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let key = visit.lock()?;
    let known = known(&visit, &key).await?;
    let rows = newest(&visit.service, &visit.namespace, Some(&key.name), limits::SCREEN_RECORDS).await?;
    let view = &known.view;
    let skipped = usize::try_from(visit.number("after").unwrap_or_default()).unwrap_or(usize::MAX);
    let shown = skipped.saturating_add(limits::SCREEN_ROWS);
    let walls = Walls::new(&rows.records, known.now, known.wall);
    let timeline = Timeline::new(&rows.records, view, known.now, &walls);
    let layout = visit.layout("Locks", known.index).await?;
    let acts = layout.signed_in.is_some();
    let more_waiters = view.waiters.len().saturating_sub(shown);
    let name = key.name.to_string();
    let call = Link::to("locks").with("lock", &name).text();
    let screen = Screen {
        layout,
        commands: visit.target().call(&format!("show {}", operand(&name)), &call),
        locks: visit.link("/locks").text(),
        line: line(view),
        value: view.value.as_ref().map(ToString::to_string).unwrap_or_default(),
        holders: view.holders.iter().take(limits::SCREEN_ROWS).map(|one| holder(&known, &walls, one, acts)).collect(),
        more_holders: view.holders.len().saturating_sub(limits::SCREEN_ROWS) as u64,
        closed: closed(view),
        waiters: waiters(&known, skipped),
        more_waiters: more_waiters as u64,
        next: (more_waiters != 0)
            .then(|| Link::lock(&key.namespace, &key.name).with("after", &shown.to_string()).text()),
        first: (skipped != 0).then(|| Link::lock(&key.namespace, &key.name).text()),
        reasons: reasons(&known.explanation, known.now),
        more_reasons: known.explanation.more,
        timeline,
        records: records::rows(&rows.records, &visit.namespace),
        more_records: rows.more,
        history: visit.target().cli(&format!("history {}", operand(&name))),
        name,
    };
    Ok(visit.show(&screen))
}

async fn known<S: LockService>(visit: &Visit<S>, key: &LockKey) -> Result<Known, Refused> {
    let reply = visit.read(Query::Explain(About::Lock(key.clone()))).await?;
    let QueryResult::Explained(explanation) = reply.answer else { return Err(unexpected().into()) };
    let reply = visit.read(Query::Inspect { lock: key.clone() }).await?;
    let QueryResult::Lock(view) = reply.answer else { return Err(unexpected().into()) };
    Ok(Known { index: reply.index, now: reply.now, wall: visit.shared.clock.wall(), view, explanation })
}

fn line(view: &LockView) -> String {
    let Some(kind) = view.kind else { return "free: no client holds it or waits for it".to_owned() };
    let limit = view.limit.map_or(String::new(), |limit| format!(" of {}", several(u64::from(limit), "permit")));
    format!(
        "a {kind}{limit}: {} holding, {} waiting",
        count(view.holders.len() as u64),
        count(view.waiters.len() as u64)
    )
}

fn closed(view: &LockView) -> Vec<String> {
    let sentence = |one: &crate::model::Closing| {
        format!("Closed for another {} by the ended hold of {} (token {}).", span(one.left_ms), one.who, one.token)
    };
    view.closed.iter().take(limits::SCREEN_SHORT_ROWS).map(sentence).collect()
}

/// The id of a session, and the link to it.
fn session(known: &Known, session: Option<SessionId>) -> Option<(String, String)> {
    let id = session?.to_string();
    let link = Link::new("/session", &known.view.lock.namespace).with("id", &id).text();
    Some((id, link))
}

fn holder(known: &Known, walls: &Walls, holder: &HolderView, acts: bool) -> Holder {
    let held_ms = known.now.ms_since(holder.since);
    let (level, health) = match health(&known.explanation, holder) {
        Some(Health::Live) => ("good", "✓ live"),
        Some(Health::Overdue) => ("bad", "! overdue"),
        Some(Health::Disconnected) => ("bad", "! disconnected"),
        Some(Health::Gone) => ("bad", "! gone"),
        Some(Health::Lease) => ("", "lease"),
        None => ("", if holder.session.is_some() { "session" } else { "lease" }),
    };
    let ends = holder.deadline.map(|deadline| {
        let kept = if holder.session.is_some() { "renewed" } else { "refreshed" };
        format!("ends in {} unless {kept}", span(deadline.ms_since(known.now)))
    });
    let token = holder.token.to_string();
    let act = |path| {
        let lock = &known.view.lock;
        Link::new(path, &lock.namespace).with("lock", lock.name.as_str()).with("token", &token).text()
    };
    let cached = match (holder.cached, holder.recalled) {
        (_, true) => ", recalled",
        (true, false) => ", cached",
        (false, false) => "",
    };
    Holder {
        client: Client::new(&holder.metadata),
        session: session(known, holder.session),
        principal: if holder.principal.is_anonymous() { String::new() } else { holder.principal.to_string() },
        mode: format!("{}{cached}", mode(holder.mode)),
        clock: clock(walls.at(holder.since)),
        held: span(held_ms),
        ends: ends.unwrap_or_default(),
        level,
        health,
        acts: acts.then(|| (act("/ask"), act("/break"))),
        token,
    }
}

/// The health of a holder, if the explanation names the holder.
fn health(explanation: &Explanation, holder: &HolderView) -> Option<Health> {
    let blockers = explanation.chain.iter().flat_map(|wait| &wait.waits_for);
    let known = |token: &Option<FencingToken>| *token == Some(holder.token);
    explanation.freed_by.iter().chain(blockers).find(|one| known(&one.who.token)).map(|one| one.who.health)
}

fn waiters(known: &Known, skipped: usize) -> Vec<Waiter> {
    let ends: BTreeMap<u64, &ExplainedWait> =
        known.explanation.chain.iter().map(|wait| (wait.sequence, wait)).collect();
    let row = |waiter: &WaiterView| {
        let until = ends.get(&waiter.sequence).and_then(|wait| wait.until);
        Waiter {
            place: count(waiter.place),
            client: Client::new(&waiter.metadata),
            session: session(known, waiter.session),
            mode: mode(waiter.mode),
            waited: span(known.now.ms_since(waiter.since)),
            gives_up: until.map(|until| format!("gives up in {}", span(until.ms_since(known.now)))).unwrap_or_default(),
        }
    };
    known.view.waiters.iter().skip(skipped).take(limits::SCREEN_ROWS).map(row).collect()
}
