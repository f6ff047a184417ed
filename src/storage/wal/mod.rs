//! One ordered, checksummed log of votes, entries, commits, truncations and purges.

mod codec;
mod disk;
mod memory;
#[cfg(test)]
mod tests;
mod torn_tail;

use std::io;

use bytes::Bytes;

use super::Done;
use super::ids::{LogId, Vote, shown};
use crate::limits::WAL_RECORD_BYTES;

pub(super) use disk::PurgeLimit;
pub use disk::{DiskWal, SyncObserver};
pub use memory::MemoryWal;
pub(super) use torn_tail::{Floor, cut_torn_tail};

/// State of a log, including what is not durable yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalState {
    /// The newest purged entry.
    pub purged: Option<LogId>,
    /// The newest entry; equal to `purged` when the log is empty.
    pub last: Option<LogId>,
    /// The last vote.
    pub vote: Option<Vote>,
    /// The newest entry recorded as committed: a lower bound.
    pub committed: Option<LogId>,
}

/// A write-ahead log. Calls take effect in the order in which they were made.
///
/// Votes, entries, truncations and purges reach the disk in that order, so that none is durable without the earlier
/// ones. `done` is called exactly once, even if the call returns an error. The first failed write or sync stops the log
/// permanently: every waiting `done` and every later call gets this error.
///
/// The following are refused with `InvalidInput` and have no effect: a lower vote, an entry that does not follow the
/// last one, a commit below the last one or beyond the end, and a truncation of committed entries.
pub trait Wal: Send + Sync + 'static {
    /// Returns the state of the log, without I/O.
    fn state(&self) -> WalState;

    /// Replaces the vote. Calls `done` when the vote is durable.
    fn save_vote(&self, vote: Vote, done: Done) -> io::Result<()>;

    /// Appends entries, which are readable on return. Calls `done` when they are durable. A crash before that may keep
    /// only a prefix of them.
    fn append(&self, records: Vec<(LogId, Bytes)>, done: Done) -> io::Result<()>;

    /// Removes every entry after `last`, which may be beyond the end. `None` empties the log.
    fn truncate_after(&self, last: Option<LogId>) -> io::Result<()>;

    /// Removes every entry up to `upto`, which may be beyond the end. Returns an error if `upto` is after the newest
    /// snapshot file.
    fn purge(&self, upto: LogId) -> io::Result<()>;

    /// Records that `id` is committed. The record becomes durable with the next append or sync; a crash before that
    /// loses it.
    fn commit(&self, id: LogId) -> io::Result<()>;

    /// Returns entries from `from` up to but not including `to`: the first one, and as many of the next ones as fit
    /// into `max_bytes` bytes in total.
    ///
    /// # Errors
    /// `NotFound` if the log does not have `from`; otherwise the errors of the disk.
    fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<(LogId, Bytes)>>;

    /// Whether [`read`](Self::read) may wait for a disk, and should be called on a separate thread.
    fn may_block(&self) -> bool {
        false
    }

    /// Calls `done` when everything that was written so far is durable.
    fn sync(&self, done: Done) -> io::Result<()>;

    /// The newest entry that is known to be durable. The mirror never contains later ones.
    fn synced(&self) -> Option<LogId>;

    /// Why the log has stopped permanently, and what to do about it.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Size of the log on disk, in bytes.
    fn size_bytes(&self) -> u64;
}

/// Checks a batch before its first entry is written, because a batch is accepted or refused as a whole.
fn check_append(mut last: Option<LogId>, records: &[(LogId, Bytes)]) -> io::Result<()> {
    for (id, bytes) in records {
        let follows = last.is_none_or(|last| id.index == last.index + 1 && *id > last);
        if !follows {
            let last = shown(last);
            return Err(refused(format!("entry {id} does not follow {last}")));
        }
        if bytes.len() > WAL_RECORD_BYTES {
            return Err(refused(format!("entry {id} has {} bytes, above the bound", bytes.len())));
        }
        last = Some(*id);
    }
    Ok(())
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn hole(index: u64) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the log does not hold entry {index}"))
}
