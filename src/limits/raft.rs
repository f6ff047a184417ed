//! Limits of the log, its replication, snapshots and checkpoints.

use super::{ENTRY_BYTES_MAX, PROPOSALS_WAITING_MAX, WAL_RECORD_BYTES};

/// Newest log entries kept in memory, for replication and apply.
pub const CACHED_ENTRIES_MAX: usize = 16_384;
/// Payload bytes of these entries, which are some seconds of full load. Entries for a follower that lags further are
/// read from disk.
pub const CACHED_ENTRY_BYTES_MAX: usize = 16 << 20;
/// Newest entries that are also kept decoded until they are applied. A decoded entry needs several times the memory.
pub const DECODED_ENTRIES_MAX: usize = 8;
/// Payload bytes of one replication request, beyond its first entry.
pub const REPLICATION_BYTES_MAX: usize = 1 << 20;
/// Entries of one replication request.
pub const REPLICATION_ENTRIES_MAX: u64 = 2_048;
/// Distance from the end of a follower's log above which a new leader does not send a guess of where that log ends. The
/// end is known from the follower's vote, so such a guess is answered locally. openraft's guesses advance by halves
/// until this many entries are left.
pub const GUESS_ENTRIES: u64 = 16;
/// Largest message between nodes; one entry may exceed [`REPLICATION_BYTES_MAX`].
pub const PEER_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Concurrent calls on one connection between nodes. A node forwards each call of its clients as one call, and the
/// calls beyond this number wait until others are answered, so the limit must exceed all calls that may be open for
/// long: the waits for an outcome, and as many commands and renewals as the leader's queue takes.
pub const PEER_STREAMS_A_CONNECTION_MAX: u32 = 49_152;
/// Waits for an outcome that a node forwards to the leader at once. A source that has too many gets no further one.
pub const FORWARDED_WAITS_MAX: usize = 16_384;
/// Size of all headers of one call between nodes. They need less than 1 KiB, and many calls may be open.
pub const PEER_HEADER_LIST_BYTES_MAX: u32 = 4 * 1024;
/// Unread bytes in flight on one stream between nodes: one message.
pub const PEER_STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Unread bytes in flight on one connection between nodes.
pub const PEER_CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Streams of one connection between nodes that were reset because of the peer's errors. More of them end the
/// connection.
pub const PEER_ERROR_RESETS_MAX: usize = 128;
/// Bytes of a snapshot in one message.
pub const SNAPSHOT_CHUNK_BYTES: usize = 512 << 10;
/// Time for one replication request, including the fsync on the follower.
pub const APPEND_MS_MAX: u64 = 2_000;
/// Time without progress after which the transfer of a snapshot is cancelled. The whole transfer has no limit. A node
/// receives one snapshot at a time, so the next leader waits at most this long for the end of a transfer that its
/// predecessor can no longer continue.
pub const SNAPSHOT_STALL_MS_MAX: u64 = 10_000;
/// Time for the installation of a snapshot after all of it was sent, plus a time that depends on its size.
pub const INSTALL_SNAPSHOT_MS_MAX: u64 = 60_000;
/// Bytes of a snapshot for which the installation gets one more millisecond.
pub const INSTALL_SNAPSHOT_BYTES_A_MS: u64 = 4 << 10;
/// First pause before an unreachable node is dialled again. The pause doubles each time.
pub const DIAL_PAUSE_MS_MIN: u64 = 10;
/// Longest pause before an unreachable node is dialled again.
pub const DIAL_PAUSE_MS_MAX: u64 = 200;
/// Longest of the first pauses before entries are sent again to a node that did not take them.
pub const APPEND_PAUSE_MS_MAX: u64 = 50;
/// Number of these first pauses. Later ones are as long as those before a node is dialled.
pub const APPEND_PAUSES_SHORT: u32 = 20;
/// Time after which a node opens the connections to other nodes that are missing or have ended.
pub const OPEN_LINKS_MS: u64 = 500;
/// Time for one attempt to connect to a node.
pub const DIAL_MS_MAX: u64 = 500;
/// Applied entries after which a checkpoint is due.
pub const CHECKPOINT_ENTRIES: u64 = 10_000;
/// Records that wait for a checkpoint and stay in memory until then. With this many, a checkpoint is due.
pub const CHECKPOINT_RECORDS: usize = 32_768;
/// Records that are read at once for a new mirror. Entries are applied between two such reads.
pub const REBUILD_RECORDS: usize = 512;
/// Time after the last checkpoint at which one is due, if anything was applied. A restart executes the entries after it
/// again. Sessions that are only renewed are written once in this time; with 3 s, this was a third of the cost of
/// 10,000 sessions.
pub const CHECKPOINT_MS: u64 = 10_000;
/// Time after a start at which the first checkpoint is due, so that a node that fails again and again does not execute
/// the same entries each time.
pub const CHECKPOINT_FIRST_MS: u64 = 1_000;
/// Least growth of the log since the last snapshot file at which a new one is due. If that file is larger, its size
/// counts.
pub const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;
/// Log entries before a snapshot file that are kept for followers that lag.
pub const PURGE_MARGIN_ENTRIES: u64 = 20_000;
/// Entries by which the log is purged at once, at most.
pub const PURGE_BATCH_ENTRIES: u64 = 1_024;
/// Lag at which a follower receives the newest snapshot instead of entries. A leader keeps all entries that a follower
/// lacks while it sends them. Without this limit, its log would grow for as long as a follower is slower than the
/// writes.
pub const REPLICATION_LAG_ENTRIES_MAX: u64 = 200_000;
/// Shortest interval between two updates of Raft's progress. Changes of role, leader and members are reported at once.
pub const VIEW_MS_MIN: u64 = 5;
/// Unanswered appends to one follower: the entries, and after them the notice that they are committed. With more, small
/// batches would be sent early. With one, every entry would wait for the notice of the previous entry.
pub const APPENDS_IN_FLIGHT_MAX: usize = 2;
/// Time that a commit notice waits for entries to be sent with. No caller of the leader waits for the notice.
pub const COMMIT_NEWS_MS_MAX: u64 = 1;
/// Changed records at which they are merged into the state's digest, if no digest is due before. `apply` waits for the
/// merge. Busy clients change the same locks and sessions repeatedly, so with a much smaller number every entry would
/// end with a merge.
pub const FOLD_RECORDS: usize = 8_192;

const _: () = assert!(2 * REPLICATION_BYTES_MAX <= PEER_MESSAGE_BYTES_MAX, "one entry beyond the cut must fit");
const _: () = assert!(2 * ENTRY_BYTES_MAX <= PEER_MESSAGE_BYTES_MAX && ENTRY_BYTES_MAX <= WAL_RECORD_BYTES);
const _: () = assert!(SNAPSHOT_CHUNK_BYTES < PEER_MESSAGE_BYTES_MAX);
const _: () = assert!(PEER_MESSAGE_BYTES_MAX <= PEER_STREAM_WINDOW_BYTES as usize);
const _: () = assert!(FORWARDED_WAITS_MAX + 2 * PROPOSALS_WAITING_MAX <= PEER_STREAMS_A_CONNECTION_MAX as usize);
const _: () = assert!(PURGE_MARGIN_ENTRIES < REPLICATION_LAG_ENTRIES_MAX);
/// Time in which a leader whose stream of entries ended must answer a probe. A leader that does not is silent, and the
/// election timeout decides.
pub const PROBE_MS_MAX: u64 = 100;
/// Pause before the leader is dialled again after a connection that failed and was not refused.
pub const PROBE_PAUSE_MS: u64 = 2;
/// Time in which another voter must report what it found when it probed the leader.
pub const PROBE_VOTERS_MS_MAX: u64 = 2 * PROBE_MS_MAX;
/// Attempts to let the next leader stand, of which each follows a probe that found the leader gone.
pub const REPLACE_ATTEMPTS_MAX: u32 = 4;
/// Ended streams of entries that wait until the leader is probed.
pub const ENDED_STREAMS_MAX: usize = 16;
