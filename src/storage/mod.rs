//! The data of a node on disk: a write-ahead log, snapshot files, a mirror of the state, and the identity of its
//! directory. Knows: limits, bytes and log ids. Never: what the bytes mean, Raft, clocks, networks.
//!
//! The log and the newest snapshot file are the source of truth. The mirror (sled) only makes starts fast and snapshot
//! files cheap to write. A start verifies the mirror first, and discards it if it is wrong.

mod backup;
mod catch_panic;
mod disk_use;
mod error;
mod fs;
mod head;
mod identity;
mod ids;
mod memory_disk;
mod mirror;
mod open;
mod recover;
mod snapshot;
mod wal;

pub use backup::{BackupError, lay_out, open_backup};
pub use catch_panic::panics_are_caught;
pub use disk_use::DiskUse;
pub use error::OpenError;
pub use head::{Head, record_hash};
pub use identity::{Identity, Owner};
pub use ids::{LogId, Vote};
pub use memory_disk::MemoryDisk;
pub use mirror::{DiskState, Job, MemoryState, StateStore};
pub use open::{DirectoryLock, Examined, Opened, examine, open};
pub use recover::{Recovered, Source};
pub use snapshot::{ReceivedSnapshot, SnapshotFile, SnapshotWriter};
pub use wal::{DiskWal, MemoryWal, SyncObserver, Wal, WalState};

/// A completion callback, called once: with the result after the operation is durable, or with the error that stopped
/// it.
///
/// The callback runs on the thread that did the work, and must be short.
pub type Done<T = ()> = Box<dyn FnOnce(std::io::Result<T>) + Send>;
