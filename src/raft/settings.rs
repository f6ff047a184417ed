//! What a node's Raft is told once, and the bounds that it runs within.

use std::collections::BTreeMap;

use openraft::{Config, SnapshotPolicy};

use super::error::StartError;
use super::types::Member;
use crate::limits;

/// How fast a silent leader is noticed, in milliseconds. It is the cluster's, not the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A leader is heard of this often.
    pub heartbeat_ms: u64,
    /// A follower whose leader is silent asks for votes after at least this long...
    pub election_min_ms: u64,
    /// ...and at most this long. Followers also refuse votes for this long after they heard of the leader.
    pub election_max_ms: u64,
}

/// What a node's Raft is told once.
#[derive(Debug, Clone)]
pub struct RaftSettings {
    /// This node's id. Never used again for another disk.
    pub node: u64,
    /// The id of this node's disk, drawn when its data directory was made. A node whose disk is not the one by which the
    /// cluster knows it is refused by the others, and stops.
    pub disk: u128,
    /// The cluster's name, for people.
    pub cluster: String,
    /// What the cluster's nodes know each other by: calls of a node with another one are refused.
    pub peers_id: u128,
    /// The Raft group within it.
    pub group_id: u64,
    /// The founding members.
    pub members: BTreeMap<u64, Member>,
    /// How fast.
    pub timing: Timing,
    /// See [`limits::CHECKPOINT_MS`].
    pub checkpoint_ms: u64,
    /// See [`limits::SNAPSHOT_LOG_BYTES_MIN`].
    pub snapshot_log_bytes_min: u64,
    /// See [`limits::PURGE_MARGIN_ENTRIES`].
    pub purge_margin_entries: u64,
}

impl RaftSettings {
    /// Settings with the bounds of [`limits`].
    #[must_use]
    pub fn new(node: u64, cluster: String, peers_id: u128, members: BTreeMap<u64, Member>, timing: Timing) -> Self {
        Self {
            node,
            disk: 0,
            cluster,
            peers_id,
            group_id: 0,
            members,
            timing,
            checkpoint_ms: limits::CHECKPOINT_MS,
            snapshot_log_bytes_min: limits::SNAPSHOT_LOG_BYTES_MIN,
            purge_margin_entries: limits::PURGE_MARGIN_ENTRIES,
        }
    }

    pub(super) fn config(&self) -> Result<Config, StartError> {
        let config = Config {
            cluster_name: self.cluster.clone(),
            heartbeat_interval: self.timing.heartbeat_ms,
            election_timeout_min: self.timing.election_min_ms,
            election_timeout_max: self.timing.election_max_ms,
            enable_pre_vote: Some(true),
            enable_leader_restore: Some(false),
            allow_log_reversion: Some(false),
            max_payload_entries: limits::REPLICATION_ENTRIES_MAX,
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: self.purge_margin_entries,
            replication_lag_threshold: limits::REPLICATION_LAG_ENTRIES_MAX,
            purge_batch_size: 1024.min(self.purge_margin_entries.max(1)),
            install_snapshot_timeout: limits::INSTALL_SNAPSHOT_MS_MAX,
            ..Config::default()
        };
        config.validate().map_err(|error| StartError::Settings(error.to_string()))
    }
}
