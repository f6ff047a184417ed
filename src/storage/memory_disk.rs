//! A disk in memory, for simulation and for nodes that keep nothing: it outlives its node, and loses what a power cut
//! would.

use std::io;

use super::mirror::MemoryState;
use super::recover::Recovered;
use super::wal::MemoryWal;

/// What one node keeps. A clone is the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    /// The Raft log: what is durable of it, and faults of its syncs.
    pub wal: MemoryWal,
    /// The mirror and the newest snapshot file.
    pub state: MemoryState,
    /// Which disk it is: a node that comes with another one is not taken for the one that its cluster knows.
    pub id: u128,
}

impl std::fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk {:032x} in memory", self.id)
    }
}

impl MemoryDisk {
    /// An empty one. Another disk needs another id.
    #[must_use]
    pub fn new(id: u128) -> Self {
        Self { wal: MemoryWal::default(), state: MemoryState::default(), id }
    }

    /// Power is cut: what was not synced is gone, and whoever waited for it never hears of it.
    pub fn crash(&self) {
        self.wal.crash();
        self.state.crash();
    }

    /// Another disk of the same id that holds what is durable on this one now, as a copy of a directory does. For tests of
    /// what a node does with an older copy.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { wal: self.wal.copy(), state: self.state.copy(), id: self.id }
    }

    /// Power is cut, and the disk holds what the copy holds when it comes back.
    pub fn put_back(&self, copy: &Self) {
        self.wal.put_back(&copy.wal);
        self.state.put_back(&copy.state);
    }

    /// What a start finds, by the rules by which a directory is opened.
    ///
    /// # Errors
    /// A log and a state that contradict each other.
    pub fn recover(&self) -> io::Result<Recovered> {
        self.state.recover(&self.wal)
    }
}
