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

pub use disk::{DiskWal, SyncObserver, WalOptions};
pub use memory::MemoryWal;
pub(super) use torn_tail::{Floor, cut_torn_tail};

/// Where a log stands, including what is not durable yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalState {
    /// The newest entry that was thrown away at the front.
    pub purged: Option<LogId>,
    /// The newest entry; equal to `purged` when the log is empty.
    pub last: Option<LogId>,
    /// The last vote.
    pub vote: Option<Vote>,
    /// The newest entry recorded as committed: a lower bound.
    pub committed: Option<LogId>,
}

/// A log. All calls take effect in the order in which they were made.
///
/// A vote, an entry, a truncation and a purge reach the disk in that order, so that no later one is durable without
/// the earlier ones. `done` is called exactly once, whatever the call itself returned. The first failed write or
/// sync stops the log for good: it is reported to every waiting `done`, and every later call answers with it.
///
/// Refused with `InvalidInput`, and without effect: a lower vote, an entry that does not follow the last one, a commit
/// that goes back or lies beyond the end, a truncation of what was committed.
pub trait Wal: Send + Sync + 'static {
    /// Where the log stands. No I/O.
    fn state(&self) -> WalState;

    /// Replaces the vote; `done` after it is durable.
    fn save_vote(&self, vote: Vote, done: Done) -> io::Result<()>;

    /// Appends entries, readable on return; `done` after they are durable. A crash before keeps a prefix of them.
    fn append(&self, records: Vec<(LogId, Bytes)>, done: Done) -> io::Result<()>;

    /// Throws away every entry after `last`; nothing happens when it is beyond the end. `None` empties the log.
    fn truncate_after(&self, last: Option<LogId>) -> io::Result<()>;

    /// Throws away every entry up to `upto`, which may lie beyond the end. Refused past the newest snapshot file.
    fn purge(&self, upto: LogId) -> io::Result<()>;

    /// Records that `id` is committed. Written with the next request that syncs: a crash may forget it.
    fn commit(&self, id: LogId) -> io::Result<()>;

    /// Entries from `from` to before `to`: a prefix of them, at least one, no more than `max_bytes` beyond the first.
    ///
    /// # Errors
    /// `NotFound` when the log does not hold `from`; the disk's own errors.
    fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<(LogId, Bytes)>>;

    /// Whether [`read`](Self::read) may wait for a disk, and belongs on a thread of its own.
    fn may_block(&self) -> bool {
        false
    }

    /// `done` after everything so far is durable.
    fn sync(&self, done: Done) -> io::Result<()>;

    /// The newest entry known to be durable. The mirror never gets ahead of it.
    fn synced(&self) -> Option<LogId>;

    /// Why the log has stopped for good, and what to do about it.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Bytes the log holds on disk.
    fn size_bytes(&self) -> u64;
}

/// Checks a whole batch before its first entry is written: a batch is taken or refused as one.
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
