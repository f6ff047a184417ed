//! A disk in memory, for simulation and for nodes without persistent data. It outlives its node, and loses what a real
//! disk would lose in a power cut.

use std::io;

use super::mirror::MemoryState;
use super::recover::Recovered;
use super::wal::MemoryWal;

/// The disk of one node. A clone is the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    /// The Raft log: its durable part, and injected faults of its syncs.
    pub wal: MemoryWal,
    /// The mirror and the newest snapshot file.
    pub state: MemoryState,
    /// Id of the disk. The cluster refuses a node that returns with another id.
    pub id: u128,
}

impl std::fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk {:032x} in memory", self.id)
    }
}

impl MemoryDisk {
    /// An empty disk. Each disk needs a unique id.
    #[must_use]
    pub fn new(id: u128) -> Self {
        Self { wal: MemoryWal::default(), state: MemoryState::default(), id }
    }

    /// Cuts the power: unsynced data is lost, and callbacks that wait for it are never called.
    pub fn crash(&self) {
        self.wal.crash();
        self.state.crash();
    }

    /// A second disk with the same id and the data that is durable now, like a copy of a directory. For tests in which
    /// a node starts from an older copy.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { wal: self.wal.copy(), state: self.state.copy(), id: self.id }
    }

    /// Cuts the power, and replaces the content of the disk with that of the copy.
    pub fn restore(&self, copy: &Self) {
        self.wal.restore(&copy.wal);
        self.state.restore(&copy.state);
    }

    /// The state that a start recovers, by the same rules as for a directory.
    ///
    /// # Errors
    /// Returns an error if log and state contradict each other.
    pub fn recover(&self) -> io::Result<Recovered> {
        self.state.recover(&self.wal)
    }
}
