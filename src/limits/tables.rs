//! Limits of the tables that a node keeps by session and by namespace.

/// Subscribers that have disconnected are removed when the table has twice as many entries as after the last removal,
/// and at least twice as many as this.
pub const SESSIONS_SWEPT_MIN: usize = 64;
/// Locks, documents, sessions or signs of life that one query of a listing looks at. A longer listing has several
/// queries, between which the node serves others. A query continues beyond this to the last sign of life of the same
/// process.
pub const LISTED_MAX: usize = 10_000;
/// Watches of one source on a node, unless the config has another number. These are `watch` and waits until a lock is
/// free.
pub const WATCHERS_A_PRINCIPAL_MAX: usize = 1_024;
/// Watches of all sources on a node.
pub const WATCHERS_A_NODE_MAX: usize = 4_096;
/// Time without a leader after which a node ends its watches, if it is longer than [`WATCH_ELECTIONS_MAX`] elections.
/// Their clients continue at a node that has a leader.
pub const WATCH_LEADERLESS_MS_MAX: u64 = 5_000;
/// Longest election timeouts for which a node without a leader keeps its watches. An election may be repeated because
/// of a split vote.
pub const WATCH_ELECTIONS_MAX: u32 = 3;
/// Pause before a retry of a watch that was refused because there are too many.
pub const WATCH_PAUSE_MS: u64 = 1_000;
/// Backups that a node makes in the time below. A second one may be needed to compare it, or after an interrupted copy.
pub const BACKUPS_A_MINUTE_MAX: usize = 3;
/// Time in which a node makes at most that many backups.
pub const BACKUPS_APART_MS: u64 = 60_000;
/// Pause before a retry of a backup that was refused because another one is in progress.
pub const BACKUP_PAUSE_MS: u64 = 1_000;
/// Longest wait until the receiver of a backup takes its next part: a receiver that stopped would refuse all others.
pub const BACKUP_PART_MS_MAX: u64 = 60_000;
/// Highest value of the limit of commands per second of one namespace.
pub const COMMANDS_A_SECOND_MAX: u32 = 1_000_000;
/// Wrong handles of one source in a second. Beyond them its handles are not compared.
pub const WRONG_HANDLES_A_SECOND: u32 = 10;
/// Counters of namespaces that send no commands are removed when the table has twice as many entries as after the last
/// removal, and at least twice as many as this.
pub const RATES_SWEPT_MIN: usize = 64;

/// Interval of keepalive pings on a connection to another node while a call waits on it.
pub const PEER_PING_MS: u64 = 1_500;
/// Time after a ping without an answer at which a connection to another node is closed. The calls that wait on it are
/// sent again.
pub const PEER_PING_WAIT_MS: u64 = 1_500;

/// Usual size of the fingerprint input of a request, in bytes. A longer input needs another allocation.
pub const FINGERPRINT_BYTES_USUAL: usize = 192;
