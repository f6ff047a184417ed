//! The errors of Raft: it did not start, an entry was not applied, or a node must stop.

use std::io;

/// The error if Raft could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error("raft settings: {0}")]
    Settings(String),
    /// The stored state or log cannot be used.
    #[error("the stored state cannot be used: {0}")]
    Stored(String),
}

/// The error if an entry was not applied, or a read was not proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The entry was not appended and never will be.
    #[error("not appended: this node does not lead")]
    NotSent {
        /// Id of the leader, if known.
        leader: Option<u64>,
    },
    /// The entry may be applied, now or later.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// This node's Raft has stopped, and nothing was appended.
    #[error("raft has stopped")]
    Stopped,
}

/// The error that a node gets after it was removed from the members. The node stops with it.
pub(super) fn removed(node: u64) -> String {
    format!(
        "node {node} was removed from this cluster, and its id is never used again. Move its \
         directory away. To join again it needs a new id: lockkeeper member add ID"
    )
}

/// The error for stored or received data that cannot be used.
pub(super) fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
