//! What a frame shows.

use serde::Serialize;

/// The cluster at one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct View {
    pub(super) cluster: String,
    pub(super) leader: Option<u64>,
    pub(super) term: u64,
    /// For how long the leader has led in this term.
    pub(super) led_ms: u64,
    pub(super) sessions: u64,
    /// Number of holders of all locks.
    pub(super) held: u64,
    /// Number of requests in all queues.
    pub(super) waiting: u64,
    pub(super) nodes: Vec<NodeRow>,
    /// The locks of the namespace with this prefix, the longest waits first. Empty while no node leads.
    pub(super) locks: Vec<LockRow>,
    /// Whether more locks have the prefix than were read.
    pub(super) more: bool,
    /// What is wrong, such as a node whose metrics cannot be read.
    pub(super) notes: Vec<String>,
}

/// A node of the cluster. Fields without a value are unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct NodeRow {
    pub(super) id: u64,
    pub(super) role: &'static str,
    pub(super) healthy: bool,
    pub(super) applied: Option<u64>,
    /// Number of log entries that it lacks.
    pub(super) behind: Option<u64>,
    /// 99th percentile of the time of a commit, since the previous frame.
    pub(super) commit_ms: Option<u64>,
    pub(super) commit_us: Option<u64>,
    /// 99th percentile of the time of a synced write of the log, since the previous frame.
    pub(super) fsync_ms: Option<u64>,
    pub(super) fsync_us: Option<u64>,
    /// Use of processors since the previous frame: 100 is one processor.
    pub(super) cpu_percent: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    /// Real time that was not counted as log time, since the node started.
    pub(super) uncounted_ms: Option<u64>,
}

/// A lock that is held or awaited.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct LockRow {
    pub(super) lock: String,
    /// The oldest holder.
    pub(super) holder: Option<String>,
    pub(super) token: Option<String>,
    pub(super) held_ms: Option<u64>,
    pub(super) waiters: u64,
    pub(super) longest_wait_ms: Option<u64>,
    /// What is known of the holder's client: `live`, `overdue`, `disconnected`, `lease`; `recalled` for a cached hold
    /// that is asked back. Unknown for a lock without waiters.
    pub(super) state: Option<&'static str>,
}

/// The order of the locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    LongestWait,
    LongestHold,
    Name,
}

impl Order {
    /// The next order.
    pub(super) fn next(self) -> Self {
        match self {
            Self::LongestWait => Self::LongestHold,
            Self::LongestHold => Self::Name,
            Self::Name => Self::LongestWait,
        }
    }

    /// The order as the last line names it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::LongestWait => "longest wait",
            Self::LongestHold => "longest hold",
            Self::Name => "name",
        }
    }

    /// Sorts rows that are in the order of their names.
    pub(super) fn sort(self, rows: &mut [LockRow]) {
        match self {
            Self::LongestWait => {
                rows.sort_by_key(|row| std::cmp::Reverse((row.longest_wait_ms, row.waiters, row.held_ms)));
            }
            Self::LongestHold => rows.sort_by_key(|row| std::cmp::Reverse(row.held_ms)),
            Self::Name => rows.sort_by(|one, other| one.lock.cmp(&other.lock)),
        }
    }
}
