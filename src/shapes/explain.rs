//! Explanations of waits, and the parts of errors.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Who, because, mode_word};
use crate::model::{DeadlockLink, ExplainedWait, Explanation, LogTime, Obstacle, Participant};
use crate::service::LeaderHint;

/// The JSON line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explained {
    /// Name of the lock; null for a session.
    lock: Option<String>,
    chain: Vec<Wait>,
    /// Holds whose end ends the wait.
    freed_by: Vec<Blocker>,
    /// Whether something was left out.
    more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Wait {
    lock: String,
    place: u64,
    sequence: String,
    waiter: Party,
    waits_for: Vec<Blocker>,
    /// How long the waiter has waited, in milliseconds.
    since_ms: u64,
    session_state: &'static str,
    /// Time until the waiter gives up, in milliseconds; null if it does not.
    gives_up_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Blocker {
    lock: String,
    because: &'static str,
    #[serde(flatten)]
    who: Party,
    since_ms: u64,
    session_state: &'static str,
    /// Time until the hold ends unless it is renewed, in milliseconds; null if only a release ends it.
    remaining_ms: Option<u64>,
    /// Whether this is a cached hold that its session was asked to release.
    recalled: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Party {
    session: Option<String>,
    owner: Option<String>,
    token: Option<String>,
    mode: &'static str,
    #[serde(flatten)]
    who: Who,
}

impl Explained {
    pub(crate) fn new(lock: Option<String>, explanation: &Explanation, now: LogTime) -> Self {
        let obstacle = |one: &Obstacle| Blocker {
            lock: one.lock.name.to_string(),
            because: because(one.why),
            who: Party::new(&one.who),
            since_ms: now.ms_since(one.who.since),
            session_state: one.who.health.word(),
            remaining_ms: one.who.ends.map(|ends| ends.ms_since(now)),
            recalled: one.who.recalled,
        };
        let wait = |wait: &ExplainedWait| Wait {
            lock: wait.lock.name.to_string(),
            place: wait.place,
            sequence: wait.sequence.to_string(),
            waiter: Party::new(&wait.waiter),
            waits_for: wait.waits_for.iter().map(obstacle).collect(),
            since_ms: now.ms_since(wait.waiter.since),
            session_state: wait.waiter.health.word(),
            gives_up_ms: wait.until.map(|until| until.ms_since(now)),
        };
        let chain = explanation.chain.iter().map(wait).collect();
        Self { lock, chain, freed_by: explanation.freed_by.iter().map(obstacle).collect(), more: explanation.more }
    }
}

impl Party {
    fn new(who: &Participant) -> Self {
        Self {
            session: who.session.map(|session| session.to_string()),
            owner: who.owner.as_ref().map(ToString::to_string),
            token: who.token.map(|token| token.to_string()),
            mode: mode_word(who.mode),
            who: Who::new(&who.metadata),
        }
    }
}

/// The leader, as the node that answered knows it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaderNode {
    node: u64,
    client: String,
}

impl LeaderNode {
    pub(crate) fn new(leader: &LeaderHint) -> Self {
        Self { node: leader.node, client: leader.client.clone() }
    }
}

/// A waiter of a deadlock. Each waits for the next, and the last for the first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CycleLink {
    session: String,
    owner: String,
    who: String,
    why: Option<String>,
    lock: String,
    /// Why the next waiter blocks this one.
    because: &'static str,
}

impl CycleLink {
    pub(crate) fn new(link: &DeadlockLink) -> Self {
        Self {
            session: link.session.to_string(),
            owner: link.owner.to_string(),
            who: link.who.to_string(),
            why: Some(link.what_for.to_string()).filter(|text| !text.is_empty()),
            lock: link.lock.name.to_string(),
            because: because(link.why),
        }
    }
}
