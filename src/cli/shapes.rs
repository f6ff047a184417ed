//! What `--json` prints, object by object. A field that may be empty is always there, and null then.

use std::time::Duration;

use serde::Serialize;

use super::position::cluster_id_text;
use crate::model::{Kind, LockSummary, LockView, LogTime, Mode, SessionView, TokenState, WaiterView};
use crate::service::{NodeStatus, Role, Status};

mod acting;
mod closed;
mod explained;
mod happened;
mod history;
mod holder;

pub(super) use acting::{Asked, Broken, EndedSession, HandedOver, Leader, Semaphore};
use closed::Closed;
pub(super) use explained::Explained;
pub(super) use happened::Happened;
pub(super) use history::HistoryLine;
use holder::Holder;

/// `acquire` and `refresh`.
#[derive(Debug, Serialize)]
pub(super) struct Leased {
    pub(super) namespace: String,
    pub(super) lock: String,
    pub(super) token: Option<String>,
    pub(super) handle: String,
    pub(super) remaining_ms: u64,
}

/// `release`.
#[derive(Debug, Serialize)]
pub(super) struct Released {
    pub(super) released: bool,
    pub(super) reason: Option<String>,
}

/// `check`.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    pub(super) state: &'static str,
    pub(super) valid: bool,
    pub(super) lowest_valid: String,
}

/// `wait`.
#[derive(Debug, Serialize)]
pub(super) struct Free {
    pub(super) namespace: String,
    pub(super) lock: String,
    pub(super) free: bool,
}

/// `lock` without a command: the grant, and its loss.
#[derive(Debug, Serialize)]
pub(super) struct Holding {
    pub(super) event: &'static str,
    pub(super) namespace: String,
    pub(super) lock: String,
    pub(super) token: String,
    pub(super) session: String,
    pub(super) remaining_ms: u64,
}

/// `lock`: another client asks for it.
#[derive(Debug, Serialize)]
pub(super) struct AskedFor {
    pub(super) event: &'static str,
    pub(super) namespace: String,
    pub(super) lock: String,
    pub(super) token: Option<String>,
    pub(super) session: String,
    pub(super) by: String,
    pub(super) why: String,
}

/// `lock`: the command has ended, and these of its processes are waited for.
#[derive(Debug, Serialize)]
pub(super) struct LeftBehind {
    pub(super) event: &'static str,
    pub(super) processes: Vec<LeftProcess>,
}

/// One of [`LeftBehind`].
#[derive(Debug, Serialize)]
pub(super) struct LeftProcess {
    pub(super) pid: u32,
    pub(super) name: String,
}

/// `show`.
#[derive(Debug, Serialize)]
pub(super) struct Lock {
    namespace: String,
    lock: String,
    kind: Option<String>,
    limit: Option<u32>,
    holders: Vec<Holder>,
    waiters: Vec<Waiter>,
    value: Option<String>,
    delay_ms: Option<u64>,
    closed: Vec<Closed>,
}

/// `ls`, a line each.
#[derive(Debug, Serialize)]
pub(super) struct LockRow {
    namespace: String,
    lock: String,
    kind: Option<String>,
    limit: Option<u32>,
    holders: u64,
    waiters: u64,
    value: Option<String>,
    delay_ms: Option<u64>,
    held_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Waiter {
    place: u64,
    sequence: u64,
    session: Option<String>,
    owner: Option<String>,
    mode: &'static str,
    permits: Option<u32>,
    who: String,
    waiting_ms: u64,
}

/// `sessions`, a line each.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    session: String,
    namespace: String,
    who: String,
    why: Option<String>,
    host: String,
    pid: u32,
    ttl_ms: u64,
    age_ms: u64,
    remaining_ms: u64,
    disconnected: bool,
    leaderless_ms: u64,
    holds: u64,
    waits: u64,
}

/// `status`.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
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
    /// For how long nothing is granted after a restore; 0 otherwise.
    closed_ms: u64,
}

/// `features`.
#[derive(Debug, Serialize)]
pub(super) struct Features {
    pub(super) active: u32,
    /// The lowest level that a node announced; null while one has not.
    pub(super) supported: Option<u32>,
}

/// `settings`, a line each.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value_ms: u64,
}

/// `transfer`.
#[derive(Debug, Serialize)]
pub(super) struct Transferred {
    pub(super) leader: u64,
}

/// `config check`, of a valid file.
#[derive(Debug, Serialize)]
pub(super) struct ConfigChecked {
    pub(super) file: String,
    pub(super) cluster: String,
    pub(super) node: u64,
    pub(super) members: usize,
}

#[derive(Debug, Serialize)]
struct Node {
    id: u64,
    role: &'static str,
    client: String,
    peer: String,
    http: String,
    applied: Option<u64>,
    /// False also where nobody knows.
    healthy: bool,
    version: Option<String>,
    features: Option<u32>,
}

/// `version`.
#[derive(Debug, Serialize)]
pub(super) struct Versions {
    pub(super) version: &'static str,
    /// The cargo profile of the build.
    pub(super) profile: &'static str,
    pub(super) protocol: &'static str,
    pub(super) protocol_min: u32,
    pub(super) protocol_max: u32,
    pub(super) format: u8,
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permits(_) => "permits",
    }
}

fn permits(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Exclusive | Mode::Shared => None,
        Mode::Permits(count) => Some(count),
    }
}

pub(super) fn state_word(state: TokenState) -> &'static str {
    match state {
        TokenState::Valid => "valid",
        TokenState::Stale => "stale",
        TokenState::UnknownEpoch => "unknown_epoch",
    }
}

pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Learner => "learner",
    }
}

/// A duration in whole milliseconds.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Lock {
    pub(super) fn new(view: &LockView, now: LogTime) -> Self {
        Self {
            namespace: view.lock.namespace.to_string(),
            lock: view.lock.name.to_string(),
            kind: view.kind.map(|kind| kind.to_string()),
            limit: view.limit,
            holders: view.holders.iter().map(|holder| Holder::new(holder, now)).collect(),
            waiters: view.waiters.iter().map(|waiter| Waiter::new(waiter, now)).collect(),
            value: view.value.as_ref().map(ToString::to_string),
            delay_ms: view.delay_ms,
            closed: view.closed.iter().map(Closed::new).collect(),
        }
    }
}

impl Waiter {
    fn new(waiter: &WaiterView, now: LogTime) -> Self {
        Self {
            place: waiter.place,
            sequence: waiter.sequence,
            session: waiter.session.map(|session| session.to_string()),
            owner: waiter.owner.as_ref().map(ToString::to_string),
            mode: mode_word(waiter.mode),
            permits: permits(waiter.mode),
            who: waiter.metadata.name().into_owned(),
            waiting_ms: now.ms_since(waiter.since),
        }
    }
}

impl LockRow {
    pub(super) fn new(row: &LockSummary, now: LogTime) -> Self {
        let kind: Kind = row.kind;
        Self {
            namespace: row.lock.namespace.to_string(),
            lock: row.lock.name.to_string(),
            kind: Some(kind.to_string()),
            limit: row.limit,
            holders: row.holders,
            waiters: row.waiters,
            value: row.value.as_ref().map(ToString::to_string),
            delay_ms: row.delay_ms,
            held_ms: row.oldest.as_ref().map(|holder| now.ms_since(holder.since)),
        }
    }
}

impl Session {
    pub(super) fn new(view: &SessionView, now: LogTime) -> Self {
        Self {
            session: view.session.to_string(),
            namespace: view.namespace.to_string(),
            who: view.metadata.name().into_owned(),
            why: filled(&view.metadata.why),
            host: view.metadata.host.to_string(),
            pid: view.metadata.pid,
            ttl_ms: view.ttl_ms,
            age_ms: now.ms_since(view.opened),
            remaining_ms: view.deadline.ms_since(now),
            disconnected: view.disconnected,
            leaderless_ms: view.leaderless_ms,
            holds: view.holds,
            waits: view.waits,
        }
    }
}

impl Cluster {
    pub(super) fn new(status: &Status) -> Self {
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
        }
    }
}

impl Node {
    fn new(node: &NodeStatus) -> Self {
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
        }
    }
}

#[cfg(test)]
mod tests;
