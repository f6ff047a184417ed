//! Why Raft did not start, an entry was not applied, or a node must stop.

/// Why Raft could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error("raft settings: {0}")]
    Settings(String),
    /// The stored state or log cannot be used.
    #[error("the stored state cannot be used: {0}")]
    Stored(String),
}

/// Why an entry was not applied, or a read not proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It was not appended and never will be.
    #[error("not appended: this node does not lead")]
    NotSent {
        /// Who does, where that is known.
        leader: Option<u64>,
    },
    /// It may be applied, now or later.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// This node's Raft has stopped. An entry that was under way may still be applied.
    #[error("raft has stopped")]
    Stopped,
}

/// What a node that is no member any more is told, and says when it stops.
pub(super) fn removed(node: u64) -> String {
    format!(
        "node {node} was removed from this cluster, and its id never comes back. Nothing is left to do here: move its \
         directory away. A node that shall join again needs a new id: lockkeeper member add"
    )
}
