//! Values that exist once in a state.

use serde::{Deserialize, Serialize};

use super::documents::Unlocking;
use crate::model::{ClusterSettings, LockKey, LogTime, Position, WallTime};

/// Counters that only grow, log time, and the cluster's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Globals {
    /// Log index of the newest applied entry.
    pub applied: u64,
    /// Log time: the newest stamp.
    pub now: LogTime,
    /// Wall clock of the newest stamp.
    pub wall: WallTime,
    /// Cluster epoch of new tokens and session ids.
    pub epoch: u16,
    /// Counter of the newest fencing token.
    pub tokens: u64,
    /// Counter of the newest session.
    pub sessions: u64,
    /// Newest sequence number that was assigned in any queue.
    pub sequences: u64,
    /// The level that every build in the cluster supports. Commands above it are not proposed. 0 if the level was never
    /// raised.
    pub feature_level: u32,
    /// The settings that the cluster's first leader proposed.
    pub settings: Option<ClusterSettings>,
    /// The cluster's id, set by its first leader, or by the restore that created the cluster. It never changes.
    pub cluster_id: Option<u128>,
    /// The longest TTL and lease that an operator set, in milliseconds. `None` if the value in `settings` applies.
    pub ttl_ms_max: Option<u64>,
    /// The largest value that the longest TTL ever had, in milliseconds. After a restore, clients may still rely on
    /// grants of that length.
    pub ttl_ms_max_ever: u64,
    /// The position of the newest record in the histories that were removed as a whole.
    pub history_floor: Position,
    /// Nothing is granted while log time is at most this, because the state was restored from a backup.
    pub closed_until: Option<LogTime>,
    /// Real time without a leader according to the log, in milliseconds. It is not part of log time.
    pub leaderless_ms: u64,
    /// The position of the newest event.
    pub newest_event: Position,
    /// Commands that free more documents than one command may look at, oldest first, at most
    /// [`UNLOCKS_OF_MANY_ALL_MAX`](crate::limits::UNLOCKS_OF_MANY_ALL_MAX).
    pub unlocking: Vec<Unlocking>,
    /// After `closed_until` has passed: the first lock whose queue was not checked since.
    pub opening: Option<LockKey>,
}
