//! The overview: the cluster, the longest waits, what needs a look, and what just happened.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;

use super::layout::{Commands, Layout};
use super::measures::Measured;
use super::nodes::NodeRow;
use super::reads::{Newest, newest, unexpected};
use super::records::{Row, rows};
use super::refused::Refused;
use super::summary::Summary;
use super::text::{Link, clock, count, full, several, span};
use super::visit::Visit;
use crate::auth::ClusterRight;
use crate::limits;
use crate::model::{LockKey, LogTime, Query, QueryResult, RefusedDeadlock};
use crate::service::{LockService, ServiceError, Status};
use crate::shapes::behind;

#[derive(Template)]
#[template(path = "overview.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    commands: Commands,
    figures: Vec<Figure>,
    nodes: Vec<NodeRow>,
    /// What an operator should look at, besides locks.
    concerns: Vec<String>,
    deadlocks: Vec<Deadlock>,
    summary: Arc<Summary>,
    records: Vec<Row>,
    more_records: bool,
    /// Why the caller sees nothing of the namespace as a whole.
    hidden: Option<String>,
    locks_link: String,
    overdue_link: String,
    waiting_link: String,
}

/// A number with its name.
struct Figure {
    name: &'static str,
    value: String,
    /// What the number does not say; may be empty.
    note: String,
}

impl Figure {
    fn new(name: &'static str, value: String, note: impl Into<String>) -> Self {
        Self { name, value, note: note.into() }
    }
}

/// A deadlock that was refused.
struct Deadlock {
    clock: String,
    at: String,
    /// The locks of the cycle with their links; `None` for those of another namespace.
    locks: Vec<Option<(String, String)>>,
}

/// Shows the overview.
pub(super) async fn overview<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let reply = visit.read(Query::Totals).await?;
    let QueryResult::Totals(totals) = reply.answer else { return Err(unexpected().into()) };
    // The waits are those of all namespaces. A caller that may read the metrics knows them.
    let measured =
        if visit.service.has(ClusterRight::Metrics) { visit.shared.measures.read() } else { Measured::default() };
    // A caller that may not read all names of the namespace must not share the summary of others.
    let found = newest(&visit.service, &visit.namespace, None, limits::SCREEN_SHORT_ROWS).await;
    let (found, summary, hidden) = match found {
        Ok(found) => (found, visit.shared.summary(&visit.service, &visit.namespace).await?, None),
        Err(ServiceError::Forbidden { why }) => (Newest { records: Vec::new(), more: true }, Arc::default(), Some(why)),
        Err(error) => return Err(error.into()),
    };
    let status = visit.status().await?;
    let rate = visit.shared.grants_a_second(reply.now, totals.grants).await;
    let screen = Screen {
        layout: visit.layout("Overview", reply.index).await?,
        commands: visit.target().commands("status", "/v1/status"),
        figures: if hidden.is_some() { Vec::new() } else { figures(&summary, rate, &measured, &status) },
        nodes: status.nodes.iter().map(|node| NodeRow::new(&status, node)).collect(),
        concerns: concerns(&status, &summary),
        deadlocks: if hidden.is_some() { Vec::new() } else { deadlocks(&visit, reply.now) },
        records: rows(&found.records, &visit.namespace),
        more_records: found.more,
        locks_link: visit.link("/locks").text(),
        overdue_link: visit.link("/locks").with("show", "overdue").text(),
        waiting_link: visit.link("/locks").with("show", "waiting").text(),
        hidden,
        summary,
    };
    Ok(visit.show(&screen))
}

/// The deadlocks of the namespace that were refused lately, the newest first.
fn deadlocks<S: LockService>(visit: &Visit<S>, now: LogTime) -> Vec<Deadlock> {
    let own = |lock: &&LockKey| lock.namespace == visit.namespace;
    let shown = |lock: &LockKey| {
        Some(lock).filter(own).map(|lock| (Link::lock(&visit.namespace, &lock.name).text(), lock.name.to_string()))
    };
    let kept = visit.shared.info.deadlocks.borrow();
    let recent = |refused: &&RefusedDeadlock| now.ms_since(refused.at) <= limits::DEADLOCK_SHOWN_MS;
    let recent = kept.iter().rev().filter(recent).filter(|refused| refused.locks.iter().any(|lock| own(&lock)));
    let line = |RefusedDeadlock { wall, locks, .. }: &RefusedDeadlock| Deadlock {
        clock: clock(*wall),
        at: full(*wall),
        locks: locks.iter().map(shown).collect(),
    };
    recent.map(line).collect()
}

fn figures(summary: &Summary, rate: Option<f64>, measured: &Measured, status: &Status) -> Vec<Figure> {
    let awaited =
        if summary.awaited == 0 { String::new() } else { format!("for {}", several(summary.awaited, "lock")) };
    let rate = rate.map_or("…".to_owned(), |rate| if rate < 10.0 { format!("{rate:.1}") } else { count(rate as u64) });
    let mut figures = vec![
        Figure::new("locks held", count(summary.held), ""),
        Figure::new("requests waiting", count(summary.waiting), awaited),
        Figure::new("sessions", count(summary.sessions), ""),
        Figure::new("grants a second", rate, "all namespaces"),
    ];
    let over = measured.secs.map_or("since the start".to_owned(), |secs| format!("last {secs} s"));
    let percentiles = [
        ("wait p99", measured.wait_ms, "all namespaces, "),
        ("commit p99", measured.commit_ms, ""),
        ("fsync p99", measured.fsync_ms, "this node, "),
    ];
    figures.extend(percentiles.into_iter().filter_map(|(name, ms, of)| {
        let ms = ms?;
        let value = if ms < 10.0 { format!("{ms:.1} ms") } else { span(ms as u64) };
        Some(Figure::new(name, value, format!("{of}{over}")))
    }));
    let refused = measured.refused.map(|refused| Figure::new("refused", count(refused), format!("this node, {over}")));
    let uncounted = status.leader.map(|_| {
        let secs = status.uncounted_ms as f64 / 1e3;
        Figure::new("not counted", format!("{secs:.1} s"), "as log time, last minute")
    });
    figures.extend(refused.into_iter().chain(uncounted));
    figures
}

/// What an operator should look at, besides locks: one sentence each.
fn concerns(status: &Status, summary: &Summary) -> Vec<String> {
    let mut found: Vec<_> =
        status.warnings.iter().map(|warning| format!("node {} warns: {warning}", status.node)).collect();
    if status.leader.is_none() {
        found.push("no node leads: are most nodes up, and connected?".to_owned());
    }
    for node in &status.nodes {
        if node.healthy == Some(false) {
            found.push(format!("node {} is unreachable for the leader", node.id));
        } else if behind(status, node).is_some_and(|behind| limits::LAG_ENTRIES_SHOWN < behind) {
            found.push(format!(
                "node {} lacks {} entries of the log",
                node.id,
                count(behind(status, node).unwrap_or(0))
            ));
        }
    }
    let mut versions: Vec<_> = status.nodes.iter().filter_map(|node| node.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    if 1 < versions.len() {
        found.push(format!("the nodes have different versions: {}", versions.join(", ")));
    }
    let long = summary.waits.iter().filter(|wait| limits::LONG_WAIT_SHOWN_MS <= wait.since_ms).count();
    if long != 0 {
        let (locks, wait) =
            (if long == 1 { "one lock has" } else { "several locks have" }, span(limits::LONG_WAIT_SHOWN_MS));
        found.push(format!("{locks} a waiter for more than {wait}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Namespace;

    /// Records that are older than what was looked at may exist. So the overview does not say that there is no history.
    #[test]
    fn older_records_may_exist() {
        let shown = |more_records| {
            let screen = Screen {
                layout: Layout::bare(&Namespace::default(), ""),
                commands: Commands { cli: String::new(), curl: String::new() },
                figures: Vec::new(),
                nodes: Vec::new(),
                concerns: Vec::new(),
                deadlocks: Vec::new(),
                summary: Arc::default(),
                records: Vec::new(),
                more_records,
                hidden: None,
                locks_link: String::new(),
                overdue_link: String::new(),
                waiting_link: String::new(),
            };
            let text = screen.render().expect("rendered");
            (text.contains("no recent record"), text.contains("no history yet"))
        };
        assert_eq!((shown(true), shown(false)), ((true, false), (false, true)));
    }
}
