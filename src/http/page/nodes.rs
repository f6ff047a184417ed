//! The screen of the nodes.

use askama::Template;
use axum::response::Response;

use super::layout::{Commands, Layout};
use super::reads::unexpected;
use super::refused::Refused;
use super::text::count;
use super::visit::Visit;
use crate::model::{Query, QueryResult, Totals};
use crate::service::{LockService, NodeStatus, Status};
use crate::shapes::{behind, cluster_id_text, role_word};

#[derive(Template)]
#[template(path = "nodes.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    commands: Commands,
    nodes: Vec<NodeRow>,
    warnings: Vec<String>,
    facts: Vec<(&'static str, String)>,
}

/// One node as a row.
pub(super) struct NodeRow {
    pub(super) id: u64,
    pub(super) role: &'static str,
    /// `good`, `bad` or nothing, for its colour.
    pub(super) level: &'static str,
    /// The same as a sign and a word.
    pub(super) health: &'static str,
    pub(super) applied: String,
    pub(super) behind: String,
    pub(super) client: String,
    pub(super) peer: String,
    pub(super) http: String,
    pub(super) version: String,
    pub(super) asked: bool,
}

impl NodeRow {
    pub(super) fn new(status: &Status, node: &NodeStatus) -> Self {
        let (level, health) = match node.healthy {
            Some(true) => ("good", "✓ healthy"),
            Some(false) => ("bad", "✕ unreachable"),
            None => ("", "? unknown"),
        };
        Self {
            id: node.id,
            role: role_word(node.role),
            level,
            health,
            applied: node.applied.map_or("?".to_owned(), count),
            behind: behind(status, node).map_or("?".to_owned(), count),
            client: node.client.clone(),
            peer: node.peer.clone(),
            http: node.http.clone(),
            version: node.version.clone().unwrap_or_else(|| "?".to_owned()),
            asked: node.id == status.node,
        }
    }
}

/// Shows the nodes.
pub(super) async fn nodes<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let reply = visit.read(Query::Totals).await?;
    let QueryResult::Totals(totals) = reply.answer else { return Err(unexpected().into()) };
    let status = visit.status().await?;
    let screen = Screen {
        layout: visit.layout("Nodes", reply.index).await?,
        commands: visit.target().commands("status", "/v1/status"),
        nodes: status.nodes.iter().map(|node| NodeRow::new(&status, node)).collect(),
        facts: facts(&status, &totals),
        warnings: status.warnings,
    };
    Ok(visit.show(&screen))
}

fn facts(status: &Status, totals: &Totals) -> Vec<(&'static str, String)> {
    let [heartbeat, shortest, longest] = status.timing_ms;
    vec![
        ("cluster", status.cluster.clone()),
        ("cluster id", status.cluster_id.map_or("not fixed yet".to_owned(), cluster_id_text)),
        ("feature level", status.features.to_string()),
        ("heartbeat, election timeout", format!("{heartbeat} ms, {shortest} to {longest} ms")),
        (
            "in all namespaces",
            format!(
                "{} sessions, {} locks, {} holds, {} waiting requests",
                count(totals.sessions),
                count(totals.locks),
                count(totals.holders),
                count(totals.waiters)
            ),
        ),
    ]
}
