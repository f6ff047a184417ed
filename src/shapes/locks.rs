//! Locks: one in full, one row of a listing, and the leader of an election. Also sessions, as any client may see them.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Holder, Waiter, Who};
use crate::client;
use crate::model::{Closing, LockName, LockSummary, LockView, LogTime, Namespace, SessionView};

/// One lock, with its holders and waiters. A free name has no kind.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lock {
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

impl Lock {
    pub(crate) fn new(view: &LockView, now: LogTime) -> Self {
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

/// What keeps a lock closed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Closed {
    token: String,
    who: String,
    /// The end of the closed time, in log time as in `status`.
    until_ms: u64,
}

impl Closed {
    pub(crate) fn new(closing: &Closing) -> Self {
        let Closing { token, who, until, left_ms: _ } = closing;
        Self { token: token.to_string(), who: who.to_string(), until_ms: until.0 }
    }
}

/// One lock in a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LockRow {
    namespace: String,
    lock: String,
    kind: String,
    limit: Option<u32>,
    holders: u64,
    waiters: u64,
    value: Option<String>,
    delay_ms: Option<u64>,
    held_ms: Option<u64>,
}

impl LockRow {
    pub(crate) fn new(row: &LockSummary, now: LogTime) -> Self {
        Self {
            namespace: row.lock.namespace.to_string(),
            lock: row.lock.name.to_string(),
            kind: row.kind.to_string(),
            limit: row.limit,
            holders: row.holders,
            waiters: row.waiters,
            value: row.value.as_ref().map(ToString::to_string),
            delay_ms: row.delay_ms,
            held_ms: row.oldest.as_ref().map(|holder| now.ms_since(holder.since)),
        }
    }
}

/// The leader of an election. Every field except the name is null without a leader.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Leader {
    namespace: String,
    lock: String,
    value: Option<String>,
    token: Option<String>,
    session: Option<String>,
    who: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
}

impl Leader {
    pub(crate) fn new(namespace: &Namespace, lock: &LockName, leader: Option<&client::Leader>) -> Self {
        let (namespace, lock) = (namespace.to_string(), lock.to_string());
        Self {
            namespace,
            lock,
            value: leader.and_then(|leader| leader.value.as_ref()).map(ToString::to_string),
            token: leader.map(|leader| leader.token.to_string()),
            session: leader.and_then(|leader| leader.session).map(|session| session.to_string()),
            who: leader.map(|leader| leader.metadata.name().into_owned()),
            host: leader.map(|leader| leader.metadata.host.to_string()),
            pid: leader.map(|leader| leader.metadata.pid),
        }
    }
}

/// One session of a namespace.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    session: String,
    namespace: String,
    #[serde(flatten)]
    who: Who,
    ttl_ms: u64,
    age_ms: u64,
    remaining_ms: u64,
    disconnected: bool,
    leaderless_ms: u64,
    holds: u64,
    waits: u64,
}

impl Session {
    pub(crate) fn new(view: &SessionView, now: LogTime) -> Self {
        Self {
            session: view.session.to_string(),
            namespace: view.namespace.to_string(),
            who: Who::new(&view.metadata),
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
