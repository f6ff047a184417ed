//! The fixed settings of a node's Raft, and its limits.

use std::collections::BTreeMap;

use openraft::{Config, SnapshotPolicy};

use super::error::StartError;
use crate::limits;
use crate::model::Member;

/// How fast the failure of a leader is detected, in milliseconds. All nodes of a cluster have the same timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time between two heartbeats of the leader.
    pub heartbeat_ms: u64,
    /// Shortest time without the leader after which a follower requests votes.
    pub election_min_ms: u64,
    /// Longest time without the leader after which a follower requests votes. Followers also refuse votes for this long
    /// after the last message of the leader.
    pub election_max_ms: u64,
}

/// The fixed settings of a node's Raft.
#[derive(Debug, Clone)]
pub struct RaftSettings {
    /// This node's id, which is never used again for another disk.
    pub node: u64,
    /// The random id of this node's disk, allocated when its data directory was created. If it is not the disk id by
    /// which the cluster knows the node, the other nodes refuse this node, and it stops.
    pub disk: u128,
    /// The random id of this process, allocated at each start. By this id, other nodes notice that the process
    /// of the leader has ended, even if its node has restarted.
    pub process: u128,
    /// The cluster's name, for display.
    pub cluster: String,
    /// The id by which the cluster's nodes recognize each other: calls with another id are refused.
    pub peers_id: u128,
    /// The founding members.
    pub members: BTreeMap<u64, Member>,
    /// The heartbeat and election times.
    pub timing: Timing,
    /// Milliseconds between two checkpoints; see [`limits::CHECKPOINT_MS`].
    pub checkpoint_ms: u64,
    /// Bytes of log after which a snapshot file is due; see [`limits::SNAPSHOT_LOG_BYTES_MIN`].
    pub snapshot_log_bytes_min: u64,
    /// Entries covered by a snapshot that stay in the log for slow followers; see [`limits::PURGE_MARGIN_ENTRIES`].
    pub purge_margin_entries: u64,
    /// Entries that a follower may lack before it gets a snapshot; see [`limits::REPLICATION_LAG_ENTRIES_MAX`].
    pub replication_lag_entries_max: u64,
}

impl RaftSettings {
    /// Returns the settings of openraft. This module decides when a snapshot is due, so openraft never does.
    pub(super) fn openraft_config(&self) -> Result<Config, StartError> {
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
            purge_batch_size: limits::PURGE_BATCH_ENTRIES.min(self.purge_margin_entries.max(1)),
            ..Config::default()
        };
        config.validate().map_err(|error| StartError::Settings(error.to_string()))
    }
}
