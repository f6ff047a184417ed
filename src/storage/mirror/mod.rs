//! The owner of mirror and snapshot files: checkpoints in, snapshot files out and in.

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

/// The records that changed since the checkpoint before, as they are at one applied entry.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// Key and new value, or `None` where the record is gone.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
    /// What all records together are after these changes.
    pub head: Head,
}

/// Told once how an export or an install ended.
pub type ExportDone = Box<dyn FnOnce(io::Result<SnapshotFile>) + Send>;

/// A place where a crash can be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The mirror is marked as being written.
    MirrorMarked,
    /// One batch of records is durable in the mirror.
    MirrorBatch,
    /// The mirror's head is durable: it counts again.
    MirrorHead,
    /// A snapshot is whole under its temporary name.
    SnapshotWritten,
    /// It has its final name, durably.
    SnapshotRenamed,
    /// The mirror before an install or a rebuild is out of the way.
    MirrorRemoved,
}

/// Called on the thread that writes, after each step.
pub type Probe = Arc<dyn Fn(Step) + Send + Sync>;

/// What the owner of mirror and snapshot files can be asked for. `done` is called exactly once.
pub enum Job {
    /// Writes the changes into the mirror. The caller has seen `head.log_id` synced in the log.
    /// A crash in the middle makes the next start set the mirror aside.
    Checkpoint(Checkpoint, Done),
    /// Writes a snapshot file of the mirror as it is at its newest checkpoint, verified against its head on the way.
    /// `InvalidData`: the mirror is wrong and was set aside; give its records to [`Job::Rebuild`].
    Export(ExportDone),
    /// Makes a received snapshot the newest; `done` as soon as that is durable. The mirror is then built from it,
    /// before anything queued later.
    Install(ReceivedSnapshot, ExportDone),
    /// Replaces the whole mirror by these records.
    Rebuild(Vec<(Bytes, Bytes)>, Head, Done),
    /// Ends the owner after everything queued before. Later jobs fail.
    Close(Done),
}

impl Job {
    /// Tells whoever asked that it was not done.
    fn fail(self, error: io::Error) {
        match self {
            Self::Checkpoint(_, done) | Self::Rebuild(_, _, done) | Self::Close(done) => done(Err(error)),
            Self::Export(done) | Self::Install(_, done) => done(Err(error)),
        }
    }
}

/// The one owner of mirror and snapshot files. Jobs are queued and done in order.
///
/// A failed write stops the mirror until a `Rebuild` or an `Install` makes it anew.
pub trait StateStore: Send + Sync + 'static {
    /// Queues a job.
    fn submit(&self, job: Job);

    /// The newest snapshot. No I/O.
    fn current_snapshot(&self) -> Option<SnapshotFile>;

    /// A temporary place for a snapshot that is being received.
    fn receive(&self) -> io::Result<SnapshotWriter>;

    /// Whether reading and writing its snapshot files may take a while, and belongs on a thread of its own.
    fn may_block(&self) -> bool;
}

/// What a job is answered that came after the end.
fn closed() -> io::Error {
    io::Error::other("the state store is closed")
}
