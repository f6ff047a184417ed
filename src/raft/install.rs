//! Replaces the whole state with a received snapshot.

use std::io;
use std::sync::Arc;

use super::blocking::{on_files, synced};
use super::core::Core;
use super::error::damaged;
use super::state_machine::Shared;
use super::types::{SnapshotData, SnapshotMeta, to_log_id};
use crate::limits::SNAPSHOT_CHUNK_BYTES;
use crate::storage::{Job, ReceivedSnapshot, SnapshotFile, StateStore};

impl Shared {
    /// Replaces the whole state with a received snapshot. After a crash the next start finds the old or the new state.
    pub(super) async fn install(&self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<()> {
        let _gate = self.gate.lock().await;
        // If a truncation were only in memory, a power failure would bring back a tail that contradicts the snapshot.
        synced(&*self.wal).await?;
        let received = match data {
            SnapshotData::Received(received) => received,
            SnapshotData::File(file) => {
                let store = Arc::clone(&self.store);
                on_files(&*self.store, move || copied(&*store, &file)).await??
            }
        };
        let announced = meta.last_log_id.as_ref().map(to_log_id);
        if received.head().log_id != announced {
            return Err(damaged(format!("a snapshot announced at {announced:?} is at {:?}", received.head().log_id)));
        }
        let file = self.run_job(|done| Job::Install(received, done)).await?;
        let origin = self.origin.clone();
        let load = move || {
            let records = file.records()?.collect::<io::Result<Vec<_>>>()?;
            Core::load(&origin, file.head(), &records)
        };
        let core = on_files(&*self.store, load).await??;
        self.follow(&core);
        let newest = core.machine.newest_event();
        let before = {
            let mut current = self.core();
            self.check_membership(current.has_member(self.me.node), &core);
            std::mem::replace(&mut *current, core)
        };
        self.hooks.installed(newest);
        // Dropping a large table takes a while.
        on_files(&*self.store, move || drop(before)).await
    }
}

fn copied(store: &dyn StateStore, file: &SnapshotFile) -> io::Result<ReceivedSnapshot> {
    let mut writer = store.receive()?;
    for chunk in file.chunks(SNAPSHOT_CHUNK_BYTES) {
        writer.write(&chunk?)?;
    }
    writer.finish()
}
