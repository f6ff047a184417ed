//! The cluster and its members as one node reports them.

use serde::{Deserialize, Serialize};

use crate::model::{LogTime, Totals};

/// The cluster as its leader sees it, or as the asked node does where no leader can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// Its id: drawn when the cluster was founded or restored. `None` before the answering node has applied it.
    pub cluster_id: Option<u128>,
    /// What its nodes know each other by: a node that joins has it in its config.
    pub peers_id: u128,
    /// Which node was asked.
    pub node: u64,
    /// Who leads, with a quorum behind it; `None` where no leader could be reached.
    pub leader: Option<u64>,
    /// Raft term.
    pub term: u64,
    /// Log time of the newest applied entry.
    pub log_time: LogTime,
    /// Newest applied log index.
    pub applied: u64,
    /// Every member.
    pub nodes: Vec<NodeStatus>,
    /// Sizes of the state there.
    pub totals: Totals,
    /// Shortest TTL that the timing profile allows.
    pub ttl_ms_min: u64,
    /// Longest TTL and lease that the cluster allows.
    pub ttl_ms_max: u64,
    /// The cluster's feature level.
    pub features: u32,
    /// Heartbeat, shortest and longest election timeout, in milliseconds: the same on every node.
    pub timing_ms: [u64; 3],
    /// For how long nothing is granted, in milliseconds of log time: after a restore. 0 otherwise.
    pub closed_ms: u64,
}

/// One member, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub id: u64,
    /// Leader, follower, learner; as far as is known.
    pub role: Role,
    /// Where clients reach it.
    pub client: String,
    /// Where peers reach it.
    pub peer: String,
    /// Where its HTTP port is; empty where it has none, or before the cluster has learnt it.
    pub http: String,
    /// How far it has the log, as far as is known.
    pub applied: Option<u64>,
    /// Whether the leader heard from it within an election timeout; `None` where nobody leads who could know.
    pub healthy: Option<bool>,
    /// Version of its build; `None` before the cluster has learnt it.
    pub version: Option<String>,
    /// Highest feature level that its build supports; `None` before the cluster has learnt it.
    pub features: Option<u32>,
}

/// A member's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Leads.
    Leader,
    /// Votes and follows.
    Follower,
    /// Follows without a vote.
    Learner,
}
