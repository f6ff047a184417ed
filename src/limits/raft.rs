//! The log, its replication, snapshots and checkpoints.

use super::{ENTRY_BYTES_MAX, WAL_RECORD_BYTES};

/// Newest log entries kept in memory, for replication and apply.
pub const RING_ENTRIES_MAX: usize = 16_384;
/// The same, in payload bytes: some seconds of full load. A follower that is further behind is read to from the disk.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Of these the newest are kept decoded as well, until they are applied. Decoded they take several times the room.
pub const DECODED_ENTRIES_MAX: usize = 8;
/// Payload bytes of one replication request, beyond its first entry.
pub const REPLICATION_BYTES_MAX: usize = 1 << 20;
/// Entries of one replication request.
pub const REPLICATION_ENTRIES_MAX: u64 = 2_048;
/// A new leader's guess of where a follower's log ends is answered without the follower, if that has voted and its log ends
/// more than so many entries later. Openraft's guesses go forward by halves until as many are left.
pub const GUESS_ENTRIES: u64 = 16;
/// Largest message between nodes; one entry may exceed [`REPLICATION_BYTES_MAX`].
pub const PEER_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a snapshot in one message.
pub const SNAPSHOT_CHUNK_BYTES: usize = 512 << 10;
/// How long a replication request may take, fsync at the other end included.
pub const APPEND_MS_MAX: u64 = 2_000;
/// A snapshot on its way is given up when no part of it moved for so long. The whole may take as long as it takes.
pub const SNAPSHOT_STALL_MS_MAX: u64 = 10_000;
/// How long the installation of a snapshot may take, once the whole of it was sent...
pub const INSTALL_SNAPSHOT_MS_MAX: u64 = 60_000;
/// ...and a millisecond more for so many bytes.
pub const INSTALL_SNAPSHOT_BYTES_A_MS: u64 = 4 << 10;
/// Snapshots that a node receives at a time: that of the leader, and that of a leader before it which goes away.
pub const SNAPSHOTS_RECEIVED_MAX: usize = 2;
/// First pause before an unreachable node is dialled again; it doubles.
pub const DIAL_PAUSE_MS_MIN: u64 = 10;
/// Longest pause before an unreachable node is dialled again.
pub const DIAL_PAUSE_MS_MAX: u64 = 200;
/// How long one dial may take.
pub const DIAL_MS_MAX: u64 = 500;
/// Applied entries after which a checkpoint is due.
pub const CHECKPOINT_ENTRIES: u64 = 10_000;
/// Records that wait for a checkpoint, after which one is due: they are in memory until it is made.
pub const CHECKPOINT_RECORDS: usize = 32_768;
/// Records of the table that are read at once for a new mirror: entries are applied between two such pieces.
pub const REBUILD_RECORDS: usize = 512;
/// A checkpoint is due this long after the last one, if anything was applied. A restart executes again what came later;
/// sessions that are only renewed are written that often, each once: with 3 s that took a third of what 10,000 of them cost.
pub const CHECKPOINT_MS: u64 = 10_000;
/// The first one after a start is due so soon: a node that ends again must not execute the same entries each time.
pub const CHECKPOINT_FIRST_MS: u64 = 1_000;
/// A snapshot file is due when the log has outgrown the last one by that file's size, or by this where it is more.
pub const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;
/// Log entries kept behind a snapshot file, for followers that lag.
pub const PURGE_MARGIN_ENTRIES: u64 = 20_000;
/// A follower further behind than this gets a snapshot.
pub const REPLICATION_LAG_ENTRIES_MAX: u64 = 200_000;
/// Progress of Raft is looked at no more often than this; changes of role, leader and members are seen at once.
pub const VIEW_MS_MIN: u64 = 5;
/// Appends to one follower that wait for its answer: the entries, and behind them the news that they are committed. More
/// would send small batches early; one would make every entry wait for the news of the one before.
pub const APPENDS_IN_FLIGHT_MAX: usize = 2;
/// The news that entries are committed waits so long for entries to travel with; no caller of the leader waits for it.
pub const COMMIT_NEWS_MS_MAX: u64 = 1;
/// Touched records are folded into the state's digest when there are so many, if no digest is due before. `apply` stands still
/// for one fold. Busy clients touch their locks and sessions again and again: with fewer than those every entry ends with one.
pub const FOLD_RECORDS: usize = 8_192;

const _: () = assert!(2 * REPLICATION_BYTES_MAX <= PEER_MESSAGE_BYTES_MAX, "one entry beyond the cut must fit");
const _: () = assert!(2 * ENTRY_BYTES_MAX <= PEER_MESSAGE_BYTES_MAX && ENTRY_BYTES_MAX <= WAL_RECORD_BYTES);
const _: () = assert!(SNAPSHOT_CHUNK_BYTES < PEER_MESSAGE_BYTES_MAX);
const _: () = assert!(PURGE_MARGIN_ENTRIES < REPLICATION_LAG_ENTRIES_MAX);
