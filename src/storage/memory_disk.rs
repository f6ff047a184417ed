//! A disk in memory, for simulation and for nodes without persistent data. It remains when its node stops. In a
//! simulated power failure it loses what a real disk would lose.

use std::io;

use super::mirror::MemoryState;
use super::recover::Recovered;
use super::wal::MemoryWal;

/// The disk of one node. A clone is the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    /// The Raft log: its durable part, and the faults that are injected into its syncs.
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

    /// Simulates a power failure: unsynced data is lost, and callbacks that wait for it are never called.
    pub fn crash(&self) {
        self.wal.crash();
        self.state.crash();
    }

    /// Returns a second disk with the same id and the data that is durable now, like a copy of a directory. Tests use
    /// it to start a node from an older copy.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { wal: self.wal.copy(), state: self.state.copy(), id: self.id }
    }

    /// Simulates a power failure, and replaces the content of the disk with that of the copy. The disk keeps its id.
    pub fn restore(&self, copy: &Self) {
        self.wal.restore(&copy.wal);
        self.state.restore(&copy.state);
    }

    /// Returns the state that a start recovers, by the same rules as for a directory.
    ///
    /// # Errors
    /// Returns an error if log and state contradict each other.
    pub fn recover(&self) -> io::Result<Recovered> {
        self.state.recover(&self.wal)
    }
}
