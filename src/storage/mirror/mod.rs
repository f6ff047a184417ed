//! The writer of mirror and snapshot files: it takes checkpoints, and exports and installs snapshot files.

mod handle;
mod memory;
mod sled;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::Done;
use super::head::Head;
use super::snapshot::{ReceivedSnapshot, SnapshotFile, SnapshotWriter};

pub(super) use self::sled::Mirror;
pub use handle::DiskState;
pub use memory::MemoryState;
pub(super) use worker::Worker;

/// Key and new value of a record that changed; `None` for a removed record.
type Change = (Bytes, Option<Bytes>);

/// A step of the writer, after which a test can inject a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The mirror is marked as being written.
    MirrorMarked,
    /// One batch of records is durable in the mirror.
    MirrorBatch,
    /// The head of the mirror is durable: the mirror is valid again.
    MirrorHead,
    /// A snapshot file is complete under its temporary name.
    SnapshotWritten,
    /// The snapshot file has its final name, durably.
    SnapshotRenamed,
    /// The previous mirror was removed before an install or a rebuild.
    MirrorRemoved,
}

/// Called on the writer thread after each step.
pub(super) type Probe = Arc<dyn Fn(Step) + Send + Sync>;

/// A request to the writer of mirror and snapshot files. Its `done` is called exactly once.
pub enum Job {
    /// Writes the changes since the previous checkpoint into the mirror, with their values at one applied entry, and
    /// the head of all records after them. The log must already have synced the entry that the head names. After a
    /// crash during the write, the next start quarantines the mirror.
    Checkpoint(Vec<Change>, Head, Done),
    /// Writes a snapshot file of the mirror at its newest checkpoint, and verifies the records against the head.
    /// `InvalidData` means that the mirror had wrong records and was quarantined; send all records with
    /// [`Job::Rebuild`].
    Export(Done<SnapshotFile>),
    /// Makes a received snapshot the newest one, and calls `done` when that is durable. The mirror is then rebuilt from
    /// it, before the next job.
    Install(ReceivedSnapshot, Done<SnapshotFile>),
    /// Replaces the whole mirror with these records.
    Rebuild(Vec<(Bytes, Bytes)>, Head, Done),
    /// Ends the writer after all queued jobs. Later jobs fail.
    Close(Done),
}

impl Job {
    /// Reports to the caller that the job was not done.
    fn fail(self, error: io::Error) {
        match self {
            Self::Checkpoint(_, _, done) | Self::Rebuild(_, _, done) | Self::Close(done) => done(Err(error)),
            Self::Export(done) | Self::Install(_, done) => done(Err(error)),
        }
    }
}

/// The only writer of mirror and snapshot files. It runs jobs in the order in which they were queued.
///
/// After a failed write into the mirror, checkpoints and exports fail until a `Rebuild` or an `Install` replaces the
/// mirror.
pub trait StateStore: Send + Sync + 'static {
    /// Queues a job.
    fn submit(&self, job: Job);

    /// Returns the newest snapshot, without I/O.
    fn current_snapshot(&self) -> Option<SnapshotFile>;

    /// Starts to receive a snapshot into a temporary file.
    fn receive(&self) -> io::Result<SnapshotWriter>;

    /// Whether access to its snapshot files may block, and should happen on a separate thread.
    fn may_block(&self) -> bool;
}

/// The error of a job that was queued after the store was closed.
fn closed() -> io::Error {
    io::Error::other("the state store is closed")
}
