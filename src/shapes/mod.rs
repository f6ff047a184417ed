//! The objects of answers, which `--json` and the HTTP port share. An empty field is always present, as null.
//!
//! Knows: limits, model, clock, service, client. Never: where an object is printed or sent.

mod acts;
pub(crate) mod events;
mod explain;
pub(crate) mod history;
mod locks;
mod status;

use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use self::acts::{Asked, Broken, Checked, EndedSession, Free, HandedOver, Semaphore, state_word};
pub(crate) use self::events::{Happened, ResumePosition};
pub(crate) use self::explain::{CycleLink, Explained, LeaderNode};
pub(crate) use self::locks::{Leader, Lock, LockRow, Session};
pub(crate) use self::status::{Cluster, Member, behind, certificate_expires};

use crate::model::{HolderView, LogTime, Metadata, Mode, WaitReason, WaiterView};
use crate::service::Role;

/// The JSON line of `acquire` and `refresh`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Leased {
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) token: Option<String>,
    pub(crate) handle: String,
    pub(crate) remaining_ms: u64,
}

/// The metadata of a client.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Who {
    who: String,
    why: Option<String>,
    host: String,
    pid: u32,
}

impl Who {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        let why = Some(&*metadata.why).filter(|why| !why.is_empty()).map(str::to_owned);
        Self { who: metadata.name().into_owned(), why, host: metadata.host.to_string(), pid: metadata.pid }
    }
}

/// A holder as `show` and `break` print it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Holder {
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
    pub(crate) fn new(holder: &HolderView, now: LogTime) -> Self {
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
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waiter {
    place: u64,
    sequence: String,
    session: Option<String>,
    owner: Option<String>,
    mode: &'static str,
    permits: Option<u32>,
    who: String,
    waiting_ms: u64,
}

impl Waiter {
    pub(crate) fn new(waiter: &WaiterView, now: LogTime) -> Self {
        Self {
            place: waiter.place,
            sequence: waiter.sequence.to_string(),
            session: waiter.session.map(|session| session.to_string()),
            owner: waiter.owner.as_ref().map(ToString::to_string),
            mode: mode_word(waiter.mode),
            permits: permits(waiter.mode),
            who: waiter.metadata.name().into_owned(),
            waiting_ms: now.ms_since(waiter.since),
        }
    }
}

pub(crate) fn mode_word(mode: Mode) -> &'static str {
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

pub(crate) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Learner => "learner",
    }
}

/// Returns why one claim blocks another, as one word.
pub(crate) fn because(why: WaitReason) -> &'static str {
    match why {
        WaitReason::Holds => "held",
        WaitReason::StandsAhead => "ahead",
        WaitReason::Nested => "nested",
        WaitReason::Closed => "closed",
    }
}

/// Returns the text of a cluster id.
pub(crate) fn cluster_id_text(cluster_id: u128) -> String {
    format!("{cluster_id:032x}")
}

#[cfg(test)]
pub(crate) mod tests;
