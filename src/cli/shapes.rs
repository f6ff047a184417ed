//! What `--json` prints, object by object. A field that may be empty is always there, and null then.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::model::{
    EndReason, Event, EventKind, HolderView, Kind, LeaveReason, LockSummary, LockView, LogTime, Mode, SessionView,
    TokenState, WaiterView,
};
use crate::service::{NodeStatus, Role, Status};

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
struct Holder {
    session: Option<String>,
    owner: Option<String>,
    token: String,
    mode: &'static str,
    permits: Option<u32>,
    who: String,
    why: Option<String>,
    host: String,
    pid: u32,
    held_ms: u64,
    remaining_ms: Option<u64>,
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
    holds: u64,
    waits: u64,
}

/// `status`.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    cluster: String,
    leader: Option<u64>,
    term: u64,
    log_time_ms: u64,
    nodes: Vec<Node>,
    sessions: u64,
    locks: u64,
    waiters: u64,
}

#[derive(Debug, Serialize)]
struct Node {
    id: u64,
    role: &'static str,
    client: String,
    peer: String,
    http: String,
    applied: Option<u64>,
    healthy: bool,
}

/// `watch`, a line each.
#[derive(Debug, Serialize)]
pub(super) struct Happened {
    position: String,
    at: String,
    event: &'static str,
    namespace: Option<String>,
    lock: Option<String>,
    token: Option<String>,
    session: Option<String>,
    mode: Option<&'static str>,
    sequence: Option<u64>,
    reason: Option<String>,
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
    gap_ms: Option<u64>,
}

/// `version`.
#[derive(Debug, Serialize)]
pub(super) struct Versions {
    pub(super) version: &'static str,
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
        Mode::Permits { .. } => "permits",
    }
}

fn permits(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Exclusive | Mode::Shared => None,
        Mode::Permits { count, .. } => Some(count),
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

/// A moment of the leader's wall clock, as RFC 3339 writes it.
pub(super) fn date(event: &Event) -> String {
    let moment = UNIX_EPOCH.checked_add(Duration::from_millis(event.wall.0)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(moment).to_string()
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
            value: None,
            delay_ms: None,
        }
    }
}

impl Holder {
    fn new(holder: &HolderView, now: LogTime) -> Self {
        Self {
            session: holder.session.map(|session| session.to_string()),
            owner: holder.owner.as_ref().map(ToString::to_string),
            token: holder.token.to_string(),
            mode: mode_word(holder.mode),
            permits: permits(holder.mode),
            who: holder.metadata.who.to_string(),
            why: filled(&holder.metadata.why),
            host: holder.metadata.host.to_string(),
            pid: holder.metadata.pid,
            held_ms: now.ms_since(holder.since),
            remaining_ms: Some(holder.deadline.ms_since(now)),
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
            who: waiter.metadata.who.to_string(),
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
            value: None,
            delay_ms: None,
            held_ms: row.oldest.as_ref().map(|holder| now.ms_since(holder.since)),
        }
    }
}

impl Session {
    pub(super) fn new(view: &SessionView, now: LogTime) -> Self {
        Self {
            session: view.session.to_string(),
            namespace: view.namespace.to_string(),
            who: view.metadata.who.to_string(),
            why: filled(&view.metadata.why),
            host: view.metadata.host.to_string(),
            pid: view.metadata.pid,
            ttl_ms: view.ttl_ms,
            age_ms: now.ms_since(view.opened),
            remaining_ms: view.deadline.ms_since(now),
            disconnected: view.disconnected,
            holds: view.holds,
            waits: view.waits,
        }
    }
}

impl Cluster {
    pub(super) fn new(status: &Status) -> Self {
        Self {
            cluster: status.cluster.clone(),
            leader: status.leader,
            term: status.term,
            log_time_ms: status.log_time.0,
            nodes: status.nodes.iter().map(Node::new).collect(),
            sessions: status.totals.sessions,
            locks: status.totals.locks,
            waiters: status.totals.waiters,
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
            healthy: node.healthy,
        }
    }
}

impl Happened {
    pub(super) fn new(event: &Event) -> Self {
        let mut happened = Self {
            position: event.position.to_string(),
            at: date(event),
            event: event.kind.word(),
            namespace: event.namespace.as_ref().map(ToString::to_string),
            lock: event.kind.lock().map(|lock| lock.name.to_string()),
            token: event.kind.token().map(|token| token.to_string()),
            session: event.kind.session().map(|session| session.to_string()),
            mode: None,
            sequence: None,
            reason: None,
            waited_ms: None,
            held_ms: None,
            gap_ms: None,
        };
        happened.add(&event.kind);
        happened
    }

    fn add(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Queued { sequence, .. } => self.sequence = Some(*sequence),
            EventKind::Granted { mode, waited_ms, .. } => {
                self.mode = Some(mode_word(*mode));
                self.waited_ms = Some(*waited_ms);
            }
            EventKind::Left { sequence, why, .. } => {
                self.sequence = Some(*sequence);
                self.reason = Some(leave_word(*why).to_owned());
            }
            EventKind::Released { held_ms, .. } => self.held_ms = Some(*held_ms),
            EventKind::Expired { reason, held_ms, .. } => {
                self.held_ms = Some(*held_ms);
                self.reason = Some(end_word(*reason));
            }
            EventKind::SessionOpened { .. } => {}
            EventKind::SessionEnded { reason, .. } => self.reason = Some(end_word(*reason)),
            EventKind::LeaderlessGap { gap_ms } => self.gap_ms = Some(*gap_ms),
        }
    }

    /// The same for people, on one line.
    pub(super) fn text(&self) -> String {
        let facts = [
            ("", self.lock.clone()),
            ("token ", self.token.clone()),
            ("session ", self.session.clone()),
            ("", self.reason.clone()),
            ("after ms ", self.waited_ms.or(self.held_ms).or(self.gap_ms).map(|ms| ms.to_string())),
        ];
        let facts = facts.into_iter().filter_map(|(label, fact)| fact.map(|fact| format!("  {label}{fact}")));
        format!("{}  {}  {:<13}{}", self.at, self.position, self.event, facts.collect::<String>())
    }
}

fn end_word(reason: EndReason) -> String {
    reason.to_string()
}

fn leave_word(reason: LeaveReason) -> &'static str {
    match reason {
        LeaveReason::TimedOut => "timed-out",
        LeaveReason::Withdrawn => "withdrawn",
        LeaveReason::SessionEnded => "session-ended",
    }
}

#[cfg(test)]
mod tests;
