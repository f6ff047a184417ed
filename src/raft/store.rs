//! The storage room's traits without their types, so that the handles above need no type parameters.

use std::io;

use bytes::Bytes;

use super::log_store::awaited;
use crate::storage::{
    Checkpoint, Done, ExportDone, Head, LogId, ReceivedSnapshot, SnapshotFile, SnapshotWriter, StateStore, Wal,
    WalState,
};

/// A [`StateStore`] behind a pointer.
pub(super) trait AnyStore: Send + Sync {
    fn checkpoint(&self, checkpoint: Checkpoint, done: Done);
    fn export(&self, done: ExportDone);
    fn install(&self, file: ReceivedSnapshot, done: ExportDone);
    fn rebuild(&self, records: Vec<(Bytes, Bytes)>, head: Head, done: Done);
    fn current_snapshot(&self) -> Option<SnapshotFile>;
    fn receive(&self) -> io::Result<SnapshotWriter>;
    fn may_block(&self) -> bool;
    fn close(&self, done: Done);
}

impl<S: StateStore> AnyStore for S {
    fn checkpoint(&self, checkpoint: Checkpoint, done: Done) {
        StateStore::checkpoint(self, checkpoint, done);
    }
    fn export(&self, done: ExportDone) {
        StateStore::export(self, done);
    }
    fn install(&self, file: ReceivedSnapshot, done: ExportDone) {
        StateStore::install(self, file, done);
    }
    fn rebuild(&self, records: Vec<(Bytes, Bytes)>, head: Head, done: Done) {
        StateStore::rebuild(self, records, head, done);
    }
    fn current_snapshot(&self) -> Option<SnapshotFile> {
        StateStore::current_snapshot(self)
    }
    fn receive(&self) -> io::Result<SnapshotWriter> {
        StateStore::receive(self)
    }
    fn may_block(&self) -> bool {
        StateStore::may_block(self)
    }
    fn close(&self, done: Done) {
        StateStore::close(self, done);
    }
}

/// What the state machine and the handle ask of a [`Wal`].
pub(super) trait AnyWal: Send + Sync {
    fn sync(&self, done: Done) -> io::Result<()>;
    fn synced(&self) -> Option<LogId>;
    fn state(&self) -> WalState;
    fn failure(&self) -> Option<String>;
    fn size_bytes(&self) -> u64;
}

impl<W: Wal> AnyWal for W {
    fn sync(&self, done: Done) -> io::Result<()> {
        Wal::sync(self, done)
    }
    fn synced(&self) -> Option<LogId> {
        Wal::synced(self)
    }
    fn state(&self) -> WalState {
        Wal::state(self)
    }
    fn failure(&self) -> Option<String> {
        Wal::failure(self)
    }
    fn size_bytes(&self) -> u64 {
        Wal::size_bytes(self)
    }
}

/// Does work on snapshot files: on a thread of its own where it may block, at once where nothing ever does.
pub(super) async fn on_files<T: Send + 'static>(
    store: &dyn AnyStore,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if store.may_block() { tokio::task::spawn_blocking(work).await.map_err(io::Error::other) } else { Ok(work()) }
}

/// Waits until everything in the log is durable.
pub(super) async fn synced(wal: &dyn AnyWal) -> io::Result<()> {
    let (done, synced) = awaited();
    wal.sync(done)?;
    synced.await
}

/// An [`ExportDone`] whose call can be awaited.
pub(super) fn awaited_file() -> (ExportDone, impl Future<Output = io::Result<SnapshotFile>> + Send) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let done: ExportDone = Box::new(move |result| {
        // Nobody waits any more when the Raft core stopped in between.
        let _ = sender.send(result);
    });
    (done, async move { receiver.await.unwrap_or_else(|_| Err(io::Error::other("the state's writer has stopped"))) })
}
