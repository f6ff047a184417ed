//! Bounds of the storage room. Unit last in the name.

/// A WAL file is closed and the next one begun at this size. Purging frees whole files only.
pub const WAL_CHUNK_BYTES: usize = 16 * MIB;
/// A WAL file is also closed at this many records: each costs eight bytes of memory.
pub const WAL_CHUNK_RECORDS: usize = 256 * 1024;
/// Entries of closed files kept in memory, so that followers and `apply` need not read the disk.
pub const WAL_CACHE_BYTES: usize = 64 * MIB;
/// The same, counted in entries.
pub const WAL_CACHE_ENTRIES: usize = 50_000;
/// The buffer a start reads WAL files through.
pub const WAL_READ_BUFFER_BYTES: usize = MIB;
/// Bytes handed to the flush thread and not yet written; beyond, the caller waits.
pub const WAL_QUEUE_BYTES: usize = 32 * MIB;
/// The largest payload of one log entry.
pub const WAL_RECORD_BYTES: usize = 8 * MIB;
/// What the disk tears: a lost page is a whole one of these, aligned in the file.
pub const DISK_PAGE_BYTES: usize = 4096;

/// Records of one mirror batch. Larger ones make sled hold gigabytes, and did not survive power cuts.
pub const MIRROR_BATCH_RECORDS: usize = 100;
/// sled's page cache.
pub const MIRROR_CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// The largest key or value in the mirror: at 128 KiB sled begins to write files of their own, never synced.
pub const MIRROR_VALUE_BYTES: usize = 64 * 1024;
/// How many mirrors that were set aside are kept for a look.
pub const MIRRORS_SET_ASIDE: usize = 3;
/// How nice the thread is that writes mirror and snapshot files (0 is normal, 19 gives way to everybody).
pub const STATE_THREAD_NICE: i32 = 10;

/// A block of a snapshot file is closed at this size.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 * 1024;
/// The largest block a reader accepts: one record more than a block may exceed its size.
pub const SNAPSHOT_BLOCK_MAX_BYTES: usize = 32 * MIB;

const MIB: usize = 1024 * 1024;

const _: () = assert!(WAL_RECORD_BYTES < WAL_CHUNK_BYTES && WAL_RECORD_BYTES < WAL_QUEUE_BYTES);
const _: () = assert!(MIRROR_VALUE_BYTES * 2 <= 128 * 1024, "sled writes larger values to files of their own");
const _: () = assert!(SNAPSHOT_BLOCK_BYTES + 2 * WAL_RECORD_BYTES <= SNAPSHOT_BLOCK_MAX_BYTES);
