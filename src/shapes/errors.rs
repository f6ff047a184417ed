//! Parts of errors.

use serde::Serialize;
use utoipa::ToSchema;

use super::because;
use crate::model::DeadlockLink;
use crate::service::LeaderHint;

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
