//! Limits of the web page: how much a screen shows and reads, and how long a sign-in lasts.

/// Rows of a list on one screen. A link leads to the next ones.
pub const SCREEN_ROWS: usize = 200;
/// Records of history on one screen.
pub const SCREEN_RECORDS: usize = 30;
/// Rows of a short list on the overview, and of the timeline of a lock.
pub const SCREEN_SHORT_ROWS: usize = 10;
/// Locks or sessions that a screen reads at once, while nothing else reads or changes the state of the node.
pub const SCAN_ROWS: u32 = 500;
/// After a scan, which reads all locks or sessions of a namespace, the next one rests for this multiple of its time, so
/// that all scans of a node use a quarter of one processor at most.
pub const SCAN_REST_FACTOR: u32 = 3;
/// Scans of a node that run or wait. Further ones are refused.
pub const SCANS_WAITING_MAX: usize = 16;
/// Queries in which a screen looks for the newest records of history.
pub const NEWEST_RECORDS_QUERIES_MAX: usize = 24;
/// Locks with waiters whose longest waits the overview reads.
pub const EXPLAINED_LOCKS_MAX: usize = 32;
/// Locks with several holders in which the screen of a session looks for the session.
pub const SHARED_LOCKS_READ_MAX: usize = 100;
/// Time in which all screens of a node show the same status and the same summary of a namespace.
pub const SUMMARY_MS: u64 = 1_000;
/// A summary is read again only after this multiple of the time that the last one took, so that the reads of a very
/// large namespace take a hundredth of one processor at most.
pub const SUMMARY_REST_FACTOR: u32 = 100;
/// Longest time after which a summary is read again.
pub const SUMMARY_REST_MS_MAX: u64 = 60_000;
/// Namespaces whose summaries a node remembers.
pub const SUMMARIES_MAX: usize = 64;
/// Time over which the overview counts grants.
pub const GRANT_RATE_MS: u64 = 60_000;
/// Earlier metrics that a node keeps over that time, to measure what happened since.
pub const SCRAPES_KEPT: u32 = 6;
/// Log entries that a follower may lack before the overview shows it.
pub const LAG_ENTRIES_SHOWN: u64 = 10_000;
/// A wait of this length is shown on the overview.
pub const LONG_WAIT_SHOWN_MS: u64 = 15 * 60_000;
/// Time for which the overview shows a refused deadlock.
pub const DEADLOCK_SHOWN_MS: u64 = 15 * 60_000;
/// Refused deadlocks of different locks that a node remembers.
pub const REFUSED_DEADLOCKS_KEPT: usize = 8;

/// Open screens of a node that are notified of changes.
pub const LIVE_SCREENS_MAX: usize = 128;
/// Shortest time between two notifications of a screen.
pub const LIVE_TICK_MS: u64 = 1_000;
/// Time after which a screen without changes is notified all the same, so that the times that it shows stay right.
pub const LIVE_SILENCE_MS: u64 = 10_000;

/// Sign-ins with one token that a node remembers. A new one replaces the oldest of them.
pub const SIGN_INS_OF_A_TOKEN_MAX: usize = 16;
/// Sign-ins that a node remembers. A new one replaces the oldest.
pub const SIGN_INS_MAX: usize = 1_024;
/// Time after which a sign-in ends.
pub const SIGN_IN_MS_MAX: u64 = 12 * 60 * 60_000;
/// Age of a sign-in up to which it may act on the locks of others.
pub const SIGN_IN_ACTS_MS_MAX: u64 = 15 * 60_000;
/// Failed sign-ins that one network may have within [`SIGN_IN_TRY_MS`].
pub const SIGN_IN_TRIES_MAX: usize = 5;
/// Time for which a failed sign-in counts.
pub const SIGN_IN_TRY_MS: u64 = 60_000;
/// Networks whose failures a node counts. A new one replaces the one that has not failed for the longest time.
pub const SIGN_IN_NETWORKS_MAX: usize = 1_024;

/// Size of the stylesheet and of the script, each.
pub const SCREEN_FILE_BYTES_MAX: usize = 6_000;
