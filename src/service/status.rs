//! The cluster and its members as one node reports them.

use serde::{Deserialize, Serialize};

use crate::model::{LogTime, Totals};

/// The cluster as its leader sees it, or as the asked node sees it if no leader can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the cluster.
    pub cluster: String,
    /// Random id of the cluster, allocated when it was founded or restored. `None` before the answering node has
    /// applied it.
    pub cluster_id: Option<u128>,
    /// Id by which the nodes recognize each other. The config of a node that joins contains it.
    pub peers_id: u128,
    /// Id of the asked node.
    pub node: u64,
    /// Id of the leader that has a quorum; `None` if no leader could be reached.
    pub leader: Option<u64>,
    /// Raft term of the answering node.
    pub term: u64,
    /// Log time of the newest applied entry.
    pub log_time: LogTime,
    /// Newest applied log index.
    pub applied: u64,
    /// All members, in the order of their ids.
    pub nodes: Vec<NodeStatus>,
    /// Totals of the state on the answering node.
    pub totals: Totals,
    /// Shortest TTL that the timing profile allows, in milliseconds.
    pub ttl_ms_min: u64,
    /// Longest TTL and lease that the cluster allows, in milliseconds.
    pub ttl_ms_max: u64,
    /// The cluster's feature level.
    pub features: u32,
    /// Heartbeat interval, shortest and longest election timeout, in milliseconds: the same on every node.
    pub timing_ms: [u64; 3],
    /// Remaining milliseconds of log time in which nothing is granted, after a restore; otherwise 0.
    pub closed_ms: u64,
    /// For how long the leader has led in this term, in milliseconds; 0 without a leader.
    pub led_ms: u64,
    /// Real time of the last minute that the leader did not count as log time although some deadline existed, in
    /// milliseconds; 0 without a leader.
    pub uncounted_ms: u64,
    /// What the operator of the asked node should change, one sentence each: open ports, certificates of any node
    /// that expire soon, and changed files that the node cannot use. If the states of the voters differ, the first one
    /// begins with [`STATES_DIFFER`].
    pub warnings: Vec<String>,
}

/// The first words of the warning about voters whose states differ although they applied the same log.
pub const STATES_DIFFER: &str = "the states of the voters differ";

/// One member of the cluster, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Id of the node.
    pub id: u64,
    /// Role of the node, if known; otherwise `Follower`.
    pub role: Role,
    /// Address for clients.
    pub client: String,
    /// Address for other nodes.
    pub peer: String,
    /// Address of its HTTP port. Empty if it has none, or before the cluster has learned it.
    pub http: String,
    /// Newest log index that the node is known to have; `None` if unknown.
    pub applied: Option<u64>,
    /// Whether the node answered the leader within an election timeout; `None` if no leader could report it.
    pub healthy: Option<bool>,
    /// Version of the build; `None` before the cluster has learned it.
    pub version: Option<String>,
    /// Highest feature level that the build supports; `None` before the cluster has learned it.
    pub features: Option<u32>,
    /// Start of the SHA-256 of its file of rules; `None` if it has none, or before the cluster has learned it.
    pub rules: Option<u64>,
    /// When the first of its certificates expires, in seconds since 1970; `None` without TLS, or before the leader has
    /// asked the node.
    pub certificate_ends: Option<u64>,
}

/// Role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Leads the cluster.
    Leader,
    /// Votes and replicates the log.
    Follower,
    /// Replicates the log without a vote.
    Learner,
}
