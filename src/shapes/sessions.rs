//! Sessions, as any client may see them.

use serde::Serialize;
use utoipa::ToSchema;

use super::Who;
use crate::model::{LogTime, SessionId, SessionView};

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
    /// Whether this is the session with this id.
    pub(crate) fn is(&self, id: SessionId) -> bool {
        self.session == id.to_string()
    }

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
