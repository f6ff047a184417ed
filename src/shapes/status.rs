//! The cluster and its members.

use serde::Serialize;
use utoipa::ToSchema;

use super::{cluster_id_text, role_word};
use crate::clock::date_of;
use crate::model::WallTime;
use crate::service::{NodeStatus, Role, Status};

/// The cluster, as its leader sees it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cluster {
    cluster: String,
    cluster_id: Option<String>,
    leader: Option<u64>,
    term: u64,
    log_time_ms: u64,
    nodes: Vec<Node>,
    sessions: u64,
    locks: u64,
    waiters: u64,
    features: u32,
    /// How long no lock is granted after a restore, in milliseconds; 0 otherwise.
    closed_ms: u64,
    /// For how long the leader has led in this term, in milliseconds; 0 without a leader.
    led_ms: u64,
    /// Real time of the last minute that the leader did not count as log time, in milliseconds; 0 without a leader.
    uncounted_ms: u64,
    /// What the operator of the asked node should change.
    warnings: Vec<String>,
}

/// One node in the status of the cluster.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Node {
    id: u64,
    role: &'static str,
    client: String,
    peer: String,
    http: String,
    applied: Option<u64>,
    /// Whether the node is healthy; false also if this is unknown.
    healthy: bool,
    version: Option<String>,
    features: Option<u32>,
    /// Digest of the node's rules; the same on every node.
    rules: Option<String>,
    /// When the first of the node's certificates expires, as in `2027-11-24T00:00:00Z`; null without TLS.
    certificate_expires: Option<String>,
}

impl Cluster {
    pub(crate) fn new(status: &Status) -> Self {
        Self {
            cluster: status.cluster.clone(),
            cluster_id: status.cluster_id.map(cluster_id_text),
            leader: status.leader,
            term: status.term,
            log_time_ms: status.log_time.0,
            nodes: status.nodes.iter().map(Node::new).collect(),
            sessions: status.totals.sessions,
            locks: status.totals.locks,
            waiters: status.totals.waiters,
            features: status.features,
            closed_ms: status.closed_ms,
            led_ms: status.led_ms,
            uncounted_ms: status.uncounted_ms,
            warnings: status.warnings.clone(),
        }
    }
}

impl Node {
    pub(crate) fn new(node: &NodeStatus) -> Self {
        Self {
            id: node.id,
            role: role_word(node.role),
            client: node.client.clone(),
            peer: node.peer.clone(),
            http: node.http.clone(),
            applied: node.applied,
            healthy: node.healthy.unwrap_or(false),
            version: node.version.clone(),
            features: node.features,
            rules: node.rules.map(|digest| format!("{digest:016x}")),
            certificate_expires: certificate_expires(node),
        }
    }
}

/// Returns when the first of a node's certificates expires, in the format of RFC 3339.
pub(crate) fn certificate_expires(node: &NodeStatus) -> Option<String> {
    let end = WallTime(node.certificate_ends?.saturating_mul(1000));
    Some(humantime::format_rfc3339_seconds(date_of(end)).to_string())
}

/// One member of the cluster.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Member {
    id: u64,
    role: &'static str,
    voter: bool,
    /// Whether the node is healthy; false also if this is unknown.
    healthy: bool,
    applied: Option<u64>,
    /// Number of log entries that the node lacks.
    behind: Option<u64>,
    client: String,
    peer: String,
}

impl Member {
    pub(crate) fn new(status: &Status, node: &NodeStatus) -> Self {
        Self {
            id: node.id,
            role: role_word(node.role),
            voter: node.role != Role::Learner,
            healthy: node.healthy.unwrap_or(false),
            applied: node.applied,
            behind: behind(status, node),
            client: node.client.clone(),
            peer: node.peer.clone(),
        }
    }
}

/// Returns the number of log entries that a node lacks.
pub(crate) fn behind(status: &Status, node: &NodeStatus) -> Option<u64> {
    node.applied.map(|applied| status.applied.saturating_sub(applied))
}
