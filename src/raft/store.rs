//! What the state machine and the handle await of storage.

use std::io;

use super::log_store::awaited;
use crate::storage::{ExportDone, SnapshotFile, StateStore, Wal};

/// Does work on snapshot files: on a thread of its own where it may block, at once where nothing ever does.
pub(super) async fn on_files<T: Send + 'static>(
    store: &dyn StateStore,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    may_wait(store.may_block(), work).await
}

/// Does work on a thread of its own where it may wait for a disk, and at once where it never does.
pub(super) async fn may_wait<T: Send + 'static>(
    may_block: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if may_block { tokio::task::spawn_blocking(work).await.map_err(io::Error::other) } else { Ok(work()) }
}

/// Waits until everything in the log is durable.
pub(super) async fn synced(wal: &dyn Wal) -> io::Result<()> {
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
