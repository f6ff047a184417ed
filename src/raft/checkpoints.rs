//! Checkpoints of the state and snapshot files: when they are due, and in which order they are written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::Raft;

use super::blocking::{awaited, on_files, synced};
use super::core::Core;
use super::dirty_records::{Changes, written};
use super::settings::RaftSettings;
use super::state_machine::{Shared, StateMachine};
use super::types::Types;
use crate::codec;
use crate::limits::{CHECKPOINT_FIRST_MS, REBUILD_RECORDS};
use crate::state::RecordKey;
use crate::storage::{Done, Head, Job, LogId, SnapshotFile, Wal};

impl Shared {
    /// Writes the changes since the last checkpoint to the mirror, if there are any.
    pub(super) async fn checkpoint(&self) -> io::Result<()> {
        let _gate = self.gate.lock().await;
        self.checkpoint_gated(false).await
    }

    /// Writes a snapshot file of the current state.
    pub(super) async fn export(&self) -> io::Result<SnapshotFile> {
        let _gate = self.gate.lock().await;
        self.checkpoint_gated(true).await?;
        match self.run_job(Job::Export).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(%error, "the mirror is damaged and is rebuilt from the table");
                self.rebuild_gated().await?;
                self.run_job(Job::Export).await
            }
            result => result,
        }
    }

    /// Queues a job of the state store, and waits until it is done.
    pub(super) async fn run_job<T: Send + 'static>(&self, job: impl FnOnce(Done<T>) -> Job) -> io::Result<T> {
        let (done, finished) = awaited();
        self.store.submit(job(done));
        finished.await
    }

    async fn checkpoint_gated(&self, even_if_unchanged: bool) -> io::Result<()> {
        let (taken, head) = {
            let mut core = self.core();
            if core.unwritten == 0 && !even_if_unchanged {
                return Ok(());
            }
            self.take(&mut core)
        };
        let begun = tokio::time::Instant::now();
        self.wait_synced(&head).await?;
        let changes = written(taken.handed_over());
        match self.run_job(|done| Job::Checkpoint(changes, head, done)).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => self.rebuild_gated().await,
            result => result,
        }?;
        self.hooks.checkpointed(begun.elapsed());
        Ok(())
    }

    /// Replaces the mirror with the table in memory. The table is read in parts, and entries are applied between them.
    /// Their changes become pending like all others, and are written over what was read. If the future is dropped, the
    /// mirror counts as failed.
    pub(super) async fn rebuild_gated(&self) -> io::Result<()> {
        let keys: Vec<RecordKey> = {
            let mut core = self.core();
            let core = &mut *core;
            core.dirty.fold(&mut core.machine);
            // The whole table contains every pending change.
            drop(core.dirty.take_pending());
            core.machine.state().record_keys().collect()
        };
        let mut records = BTreeMap::new();
        for piece in keys.chunks(REBUILD_RECORDS) {
            {
                let core = self.core();
                let found = piece.iter().filter_map(|key| Some((key, core.machine.state().record(key)?)));
                records.extend(found.map(|(key, record)| codec::encode_record(key, &record)));
            }
            tokio::task::yield_now().await;
        }
        let (taken, head) = self.take(&mut self.core());
        self.wait_synced(&head).await?;
        let changes = taken.handed_over();
        let put_together = move || {
            for (key, value) in written(changes) {
                match value {
                    Some(value) => drop(records.insert(key, value)),
                    None => drop(records.remove(&key)),
                }
            }
            drop(keys);
            records.into_iter().collect()
        };
        let records = on_files(&*self.store, put_together).await?;
        self.run_job(|done| Job::Rebuild(records, head, done)).await
    }

    /// Takes all changes since the last checkpoint, and the head of the state that contains them.
    fn take(&self, core: &mut Core) -> (Taken<'_>, Head) {
        core.dirty.fold(&mut core.machine);
        let unwritten = std::mem::take(&mut core.unwritten);
        (Taken { shared: self, changes: core.dirty.take_pending(), unwritten }, core.head())
    }

    /// Waits until this node's log is durable up to this state. The mirror must never be ahead of this node's log:
    /// other nodes may have committed entries that are not durable here.
    async fn wait_synced(&self, head: &Head) -> io::Result<()> {
        if self.wal.synced() >= head.log_id {
            return Ok(());
        }
        synced(&*self.wal).await
    }
}

/// Changes that are being written to the mirror. If they are dropped before the writer has them, they become pending
/// again, because a caller may drop a backup at any time and the next checkpoint must still write them.
struct Taken<'s> {
    shared: &'s Shared,
    changes: Changes,
    unwritten: u64,
}

impl Taken<'_> {
    fn handed_over(mut self) -> Changes {
        self.unwritten = 0;
        std::mem::take(&mut self.changes)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut core = self.shared.core();
        core.dirty.restore(std::mem::take(&mut self.changes));
        core.unwritten += self.unwritten;
    }
}

/// Returns the approximate size of the newest entries of a log, which stay after a snapshot.
fn unpurgeable_bytes(wal: &dyn Wal, purge_margin_entries: u64) -> u64 {
    let state = wal.state();
    let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
    let entries = index(state.last) - index(state.purged);
    wal.size_bytes() * entries.min(purge_margin_entries) / entries.max(1)
}

/// Writes checkpoints and requests snapshot files when they are due. Ends with the first failure, which stops the node.
pub(super) async fn keep(raft: Raft<Types, StateMachine>, shared: Arc<Shared>, settings: RaftSettings) {
    let mut seen = unpurgeable_bytes(&*shared.wal, settings.purge_margin_entries);
    let mut wait_ms = CHECKPOINT_FIRST_MS.min(settings.checkpoint_ms);
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => (),
            () = shared.checkpoint_due.notified() => (),
        }
        wait_ms = settings.checkpoint_ms;
        if let Err(error) = shared.checkpoint().await {
            shared.fail(&format!("a checkpoint could not be written: {error}"));
            return;
        }
        let newest_bytes = shared.store.current_snapshot().map_or(0, |file| file.size_bytes());
        let due = newest_bytes.max(settings.snapshot_log_bytes_min);
        let logged = shared.log_bytes.load(Ordering::Relaxed);
        if logged.saturating_sub(seen) >= due {
            seen = logged;
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}
