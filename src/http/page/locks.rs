//! The screen with the locks of a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use askama::Template;
use axum::response::Response;

use super::layout::{Commands, Layout};
use super::reads::{all_locks, each_lock, one_session};
use super::refused::Refused;
use super::summary::{self, problems};
use super::text::{Client, Link, count, operand, span};
use super::visit::Visit;
use crate::limits;
use crate::model::{ListFilter, ListShow, LockName, LockSummary, LogTime, SessionId};
use crate::service::{LockService, ServiceError};

#[derive(Template)]
#[template(path = "locks.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    commands: Commands,
    prefix: String,
    /// The filters by state: word in the query, text, and whether it is chosen.
    shows: [(&'static str, &'static str, bool); 4],
    /// The filters by age: milliseconds, text, and whether it is chosen.
    ages: Vec<(u64, String, bool)>,
    rows: Vec<Row>,
    /// Whether the list begins after a name.
    continued: bool,
    /// The link to the first rows.
    first: String,
    /// The link to the next rows, if any.
    next: Option<String>,
}

/// The choices of the filter by state: word in the query, text, and what it selects.
const SHOWS: [(&str, &str, ListShow); 4] = [
    ("", "all", ListShow::All),
    ("held", "held", ListShow::Held),
    ("waiting", "waiting", ListShow::Waiting),
    ("overdue", "overdue", ListShow::Overdue),
];

/// The choices of the filter by age: milliseconds and text.
const AGES: [(u64, &str); 5] =
    [(0, "any time"), (60_000, "1 minute"), (600_000, "10 minutes"), (3_600_000, "1 hour"), (86_400_000, "1 day")];

/// Returns the choices of the filter by age. If the chosen age is none of [`AGES`], for example in a link that a user
/// wrote, it is added as the last choice.
fn ages(chosen: u64) -> Vec<(u64, String, bool)> {
    let other = AGES.iter().all(|(ms, _)| *ms != chosen).then(|| (chosen, span(chosen), true));
    AGES.iter().map(|(ms, text)| (*ms, (*text).to_owned(), *ms == chosen)).chain(other).collect()
}

/// One lock as a row.
struct Row {
    name: String,
    link: String,
    kind: String,
    holders: String,
    waiters: String,
    /// The oldest holder, if any.
    holder: Option<Client>,
    /// How long the oldest holder has held the lock; empty if there is none.
    held: String,
    /// The problem of the oldest holder's session, in one word; may be empty.
    problem: &'static str,
}

impl Row {
    fn new(row: &LockSummary, problem: Option<&'static str>, now: LogTime) -> Self {
        let oldest = row.oldest.as_ref();
        Self {
            name: row.lock.name.to_string(),
            link: Link::lock(&row.lock.namespace, &row.lock.name).text(),
            kind: row.limit.map_or(row.kind.to_string(), |limit| format!("{} of {limit}", row.kind)),
            holders: count(row.holders),
            waiters: count(row.waiters),
            holder: oldest.map(|holder| Client::new(&holder.metadata)),
            held: oldest.map(|holder| span(now.ms_since(holder.since))).unwrap_or_default(),
            problem: problem.unwrap_or_default(),
        }
    }
}

/// Shows the locks of a namespace.
pub(super) async fn locks<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let asked = visit.field("show").unwrap_or_default();
    let (word, _, show) = SHOWS.into_iter().find(|(word, ..)| *word == asked).unwrap_or(SHOWS[0]);
    let prefix = visit.field("prefix").unwrap_or_default();
    let after = visit.field("after").map(LockName::parse).transpose()?;
    let older_than_ms = visit.number("older_than_ms").unwrap_or_default();
    let filter = ListFilter { prefix: prefix.to_owned(), after: after.clone(), ..all_locks(&visit.namespace) };
    let scans = &visit.shared.scans;
    // The filter `overdue` needs the problems of all sessions before it selects rows. Any other filter needs only those
    // of the selected rows, which are read below.
    let problems = if show == ListShow::Overdue {
        problems(&visit.service, scans, &visit.namespace).await?.1
    } else {
        BTreeMap::new()
    };
    let (mut found, mut more) = (Vec::new(), false);
    let (index, now) = each_lock(&visit.service, scans, filter, |row, now| {
        if !is_selected(row, show, older_than_ms, problem(row, &problems), now) {
            return ControlFlow::Continue(());
        }
        more = found.len() == limits::SCREEN_ROWS;
        if more {
            return ControlFlow::Break(());
        }
        found.push(row.clone());
        ControlFlow::Continue(())
    })
    .await?;
    let problems = if show == ListShow::Overdue { problems } else { problems_of_holders(&visit, &found).await? };
    let last = found.last().filter(|_| more).map(|last| last.lock.name.clone());
    let age = if older_than_ms == 0 { String::new() } else { older_than_ms.to_string() };
    let here =
        || visit.link("/locks").with_any("show", asked).with_any("prefix", prefix).with_any("older_than_ms", &age);
    let screen = Screen {
        layout: visit.layout("Locks", index).await?,
        commands: commands(&visit, word, prefix, older_than_ms),
        prefix: prefix.to_owned(),
        shows: SHOWS.map(|(word, text, of)| (word, text, of == show)),
        ages: ages(older_than_ms),
        rows: found.iter().map(|row| Row::new(row, problem(row, &problems), now)).collect(),
        continued: after.is_some(),
        first: here().text(),
        next: last.map(|last| here().with("after", last.as_str()).text()),
    };
    Ok(visit.show(&screen))
}

/// Finds the problems of the sessions that hold these locks.
async fn problems_of_holders<S: LockService>(
    visit: &Visit<S>,
    rows: &[LockSummary],
) -> Result<BTreeMap<SessionId, &'static str>, Refused> {
    let holders: BTreeSet<_> = rows.iter().filter_map(|row| row.oldest.as_ref()?.session).collect();
    let mut problems = BTreeMap::new();
    for id in holders {
        match one_session(&visit.service, &visit.namespace, id).await {
            Ok((view, _, now)) => problems.extend(view.and_then(|view| Some((id, summary::problem(&view, now)?)))),
            // A caller with access to only some names has no access to the sessions.
            Err(ServiceError::Forbidden { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(problems)
}

fn problem(row: &LockSummary, problems: &BTreeMap<SessionId, &'static str>) -> Option<&'static str> {
    problems.get(&row.oldest.as_ref()?.session?).copied()
}

fn is_selected(row: &LockSummary, show: ListShow, older_than_ms: u64, problem: Option<&str>, now: LogTime) -> bool {
    let shown = match show {
        ListShow::All => true,
        ListShow::Held => row.holders != 0,
        ListShow::Waiting => row.waiters != 0,
        ListShow::Overdue => problem.is_some(),
    };
    let age_ms = row.oldest.as_ref().map_or(0, |holder| now.ms_since(holder.since));
    shown && older_than_ms <= age_ms
}

fn commands<S: LockService>(visit: &Visit<S>, show: &str, prefix: &str, older_than_ms: u64) -> Commands {
    let mut cli = "ls".to_owned();
    let mut call = Link::to("locks").with_any("prefix", prefix);
    if !show.is_empty() {
        cli += &format!(" --{show}");
        call = call.with("show", show);
    }
    if older_than_ms != 0 {
        cli += &format!(" --older-than {older_than_ms}ms");
        call = call.with("older_than_ms", &older_than_ms.to_string());
    }
    if !prefix.is_empty() {
        cli += &format!(" {}", operand(prefix));
    }
    visit.target().call(&cli, &call.text())
}
