//! Ids of Raft: the id of a log entry, and a vote.

use std::fmt;

/// Id of one log entry, ordered by term, then node, then index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The term in which the entry was proposed.
    pub term: u64,
    /// The leader that proposed it.
    pub node: u64,
    /// Its position in the log, counted from 0 without gaps.
    pub index: u64,
}

impl LogId {
    /// Id of the entry at `index` that `node` proposed in `term`.
    pub fn new(term: u64, node: u64, index: u64) -> Self {
        Self { term, node, index }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}-N{}.{}", self.term, self.node, self.index)
    }
}

/// The candidate that a node voted for, and whether a quorum granted the vote. A vote never decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vote {
    /// The term voted in.
    pub term: u64,
    /// Id of the candidate.
    pub node: u64,
    /// Whether a quorum granted it, so that the candidate leads.
    pub committed: bool,
}

/// The text of `id`; "nothing" if it is `None`.
pub(super) fn shown(id: Option<LogId>) -> String {
    id.map_or_else(|| "nothing".to_string(), |id| id.to_string())
}

/// The index after `id`; 0 if it is `None`.
pub(super) fn next_index(id: Option<LogId>) -> u64 {
    id.map_or(0, |id| id.index + 1)
}
