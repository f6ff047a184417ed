//! What `break ask handover semaphore leader --json` print.

use serde::Serialize;

use super::{Holder, Waiter};
use crate::client;
use crate::model::{BreakReport, LockName, LogTime, Namespace};

/// `break`.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Broken {
    /// False where it was only tried dry.
    broken: bool,
    lock: String,
    holder: Holder,
    /// How long ago its session gave a sign of life; null where it has none.
    last_seen_ms: Option<u64>,
    next: Option<Waiter>,
}

/// `ask`.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Asked {
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) lock: String,
    pub(in crate::cli) token: String,
    pub(in crate::cli) asked: bool,
}

/// `session end`.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct EndedSession {
    pub(in crate::cli) session: String,
    pub(in crate::cli) ended: bool,
}

/// `handover`: the new grant.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct HandedOver {
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) lock: String,
    pub(in crate::cli) token: String,
    pub(in crate::cli) session: String,
}

/// `semaphore`; the limit is null where it was removed.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Semaphore {
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) lock: String,
    pub(in crate::cli) limit: Option<u32>,
}

/// `leader`; everything but the name is null where nobody leads.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Leader {
    namespace: String,
    lock: String,
    value: Option<String>,
    token: Option<String>,
    session: Option<String>,
    who: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
}

impl Broken {
    pub(in crate::cli) fn new(lock: &LockName, breach: &BreakReport, now: LogTime) -> Self {
        Self {
            broken: breach.done,
            lock: lock.to_string(),
            holder: Holder::new(&breach.holder, now),
            last_seen_ms: breach.last_seen.map(|seen| now.ms_since(seen)),
            next: breach.next.as_ref().map(|waiter| Waiter::new(waiter, now)),
        }
    }
}

impl Leader {
    pub(in crate::cli) fn new(namespace: &Namespace, lock: &LockName, leader: Option<&client::Leader>) -> Self {
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
