//! Answers to checks and waits, and to operations on the locks and sessions of other clients.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Holder, Waiter};
use crate::model::{BreakReport, LockName, LogTime, TokenState};

/// The verdict on a token: `valid`, `stale` or `unknown_epoch`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Checked {
    pub(crate) state: &'static str,
    pub(crate) valid: bool,
    pub(crate) lowest_valid: String,
}

pub(crate) fn state_word(state: TokenState) -> &'static str {
    match state {
        TokenState::Valid => "valid",
        TokenState::Stale => "stale",
        TokenState::UnknownEpoch => "unknown_epoch",
    }
}

/// Whether a lock is free.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Free {
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) free: bool,
}

/// The hold that was broken, or that a dry run would break.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Broken {
    /// Whether the hold was broken; false for a dry run.
    pub(crate) broken: bool,
    pub(crate) lock: String,
    pub(crate) holder: Holder,
    /// Time since the last renewal of its session; null for a lease.
    pub(crate) last_seen_ms: Option<u64>,
    pub(crate) next: Option<Waiter>,
}

impl Broken {
    pub(crate) fn new(lock: &LockName, report: &BreakReport, now: LogTime) -> Self {
        Self {
            broken: report.done,
            lock: lock.to_string(),
            holder: Holder::new(&report.holder, now),
            last_seen_ms: report.last_seen.map(|seen| now.ms_since(seen)),
            next: report.next.as_ref().map(|waiter| Waiter::new(waiter, now)),
        }
    }
}

/// The new grant after a hand-over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandedOver {
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) token: String,
    pub(crate) session: String,
}

/// The limit of a semaphore; null after it was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Semaphore {
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) limit: Option<u32>,
}

/// The hold whose holder was asked to release it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Asked {
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) token: String,
    pub(crate) asked: bool,
}

/// The session that was ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndedSession {
    pub(crate) session: String,
    pub(crate) ended: bool,
}
