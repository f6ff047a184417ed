//! Parts of `--json` output that several commands share. An empty field is always present, as null.

use std::time::Duration;

use serde::Serialize;

use crate::model::{HolderView, LogTime, Metadata, Mode, WaitReason, WaiterView};
use crate::service::Role;

/// The JSON line of `acquire` and `refresh`.
#[derive(Debug, Serialize)]
pub(super) struct Leased {
    pub(super) namespace: String,
    pub(super) lock: String,
    pub(super) token: Option<String>,
    pub(super) handle: String,
    pub(super) remaining_ms: u64,
}

/// The metadata of a client.
#[derive(Debug, Serialize)]
pub(super) struct Who {
    who: String,
    why: Option<String>,
    host: String,
    pid: u32,
}

impl Who {
    pub(super) fn new(metadata: &Metadata) -> Self {
        let why = Some(&*metadata.why).filter(|why| !why.is_empty()).map(str::to_owned);
        Self { who: metadata.name().into_owned(), why, host: metadata.host.to_string(), pid: metadata.pid }
    }
}

/// A holder as `show` and `break` print it.
#[derive(Debug, Serialize)]
pub(super) struct Holder {
    session: Option<String>,
    owner: Option<String>,
    token: String,
    mode: &'static str,
    permits: Option<u32>,
    #[serde(flatten)]
    who: Who,
    held_ms: u64,
    remaining_ms: Option<u64>,
    cached: bool,
    recalled: bool,
}

impl Holder {
    pub(super) fn new(holder: &HolderView, now: LogTime) -> Self {
        Self {
            session: holder.session.map(|session| session.to_string()),
            owner: holder.owner.as_ref().map(ToString::to_string),
            token: holder.token.to_string(),
            mode: mode_word(holder.mode),
            permits: permits(holder.mode),
            who: Who::new(&holder.metadata),
            held_ms: now.ms_since(holder.since),
            remaining_ms: holder.deadline.map(|deadline| deadline.ms_since(now)),
            cached: holder.cached,
            recalled: holder.recalled,
        }
    }
}

/// A waiter as `show` and `break` print it.
#[derive(Debug, Serialize)]
pub(super) struct Waiter {
    place: u64,
    sequence: u64,
    session: Option<String>,
    owner: Option<String>,
    mode: &'static str,
    permits: Option<u32>,
    who: String,
    waiting_ms: u64,
}

impl Waiter {
    pub(super) fn new(waiter: &WaiterView, now: LogTime) -> Self {
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

pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Learner => "learner",
    }
}

/// Returns why one claim blocks another, as one word.
pub(super) fn because(why: WaitReason) -> &'static str {
    match why {
        WaitReason::Holds => "held",
        WaitReason::StandsAhead => "ahead",
        WaitReason::Nested => "nested",
        WaitReason::Closed => "closed",
    }
}

/// A duration in whole milliseconds.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the text of a cluster id.
pub(super) fn cluster_id_text(cluster_id: u128) -> String {
    format!("{cluster_id:032x}")
}

#[cfg(test)]
pub(super) mod tests;
