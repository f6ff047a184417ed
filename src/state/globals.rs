//! What there is once in a whole state.

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
    /// Newest place number handed out in any queue.
    pub sequences: u64,
    /// Every build that may run supports this level: commands above it are not proposed. 0 where it was never raised.
    pub feature_level: u32,
    /// Agreed on by the cluster's first leader.
    pub settings: Option<ClusterSettings>,
    /// Fixed by the cluster's first leader, or by the restore that founded the cluster. It never changes.
    pub cluster_id: Option<u128>,
    /// Longest TTL and lease as an operator set it; `None` where it is the settings' own.
    pub ttl_ms_max: Option<u64>,
    /// The largest that this ever was: grants of that time may still be believed after a restore.
    pub ttl_ms_max_ever: u64,
    /// The newest record of a namespace whose whole history was forgotten.
    pub history_floor: Position,
    /// Nothing is granted while log time is at most this: the state was restored from a backup.
    pub closed_until: Option<LogTime>,
    /// Real time without a leader that the log has told of, in milliseconds: it is no log time.
    pub leaderless_ms: u64,
    /// Where the newest event stands.
    pub newest_event: Position,
    /// Commands that freed more documents than one command may go through, oldest first.
    pub unlocking: Vec<Unlocking>,
    /// Once `closed_until` has passed: the first lock whose queue was not looked at yet.
    pub opening: Option<LockKey>,
}
