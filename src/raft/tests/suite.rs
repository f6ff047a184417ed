//! openraft's own test suite for log stores and state machines, run with both storages.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};

use super::super::log_store::LogStore;
use super::super::messages::SelfIdentity;
use super::super::payload::Origin;
use super::super::state_machine::{Shared, StateMachine};
use super::super::types::Types;
use super::{Deaf, nothing};
use crate::storage::{self, DirectoryLock, MemoryState, MemoryWal, Owner};

const ME: SelfIdentity = SelfIdentity { peers_id: 7, node: 1, disk: 11, process: 0 };

fn origin() -> Origin {
    Origin { cluster: "suite".to_owned(), peers_id: 7 }
}

struct InMemory;

impl StoreBuilder<Types, LogStore, StateMachine, ()> for InMemory {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<Types>> {
        let (wal, state) = (Arc::new(MemoryWal::default()), Arc::new(MemoryState::default()));
        let shared = Shared::new(ME, origin(), &nothing(), state, wal.clone(), Arc::new(Deaf)).unwrap();
        Ok(((), LogStore::new(wal), StateMachine(Arc::new(shared))))
    }
}

struct OnDisk;

impl StoreBuilder<Types, LogStore, StateMachine, (DirectoryLock, tempfile::TempDir)> for OnDisk {
    #[allow(clippy::type_complexity)]
    async fn build(&self) -> Result<((DirectoryLock, tempfile::TempDir), LogStore, StateMachine), StorageError<Types>> {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner { cluster: "suite".to_owned(), peers_id: 7, node: 1 };
        let opened = storage::open(&dir.path().join("node"), owner, 11).unwrap();
        let wal = Arc::new(opened.wal);
        wal.assume_snapshot_of_everything();
        let shared =
            Shared::new(ME, origin(), &opened.recovered, Arc::new(opened.state), wal.clone(), Arc::new(Deaf)).unwrap();
        Ok(((opened.lock, dir), LogStore::new(wal), StateMachine(Arc::new(shared))))
    }
}

/// The adapters with the storage in memory meet all of openraft's requirements.
#[tokio::test]
async fn the_store_in_memory_passes_the_suite() {
    Suite::test_all(InMemory).await.unwrap();
}

/// The adapters with the storage on disk meet all of openraft's requirements.
#[tokio::test]
async fn the_store_on_disk_passes_the_suite() {
    Suite::test_all(OnDisk).await.unwrap();
}
