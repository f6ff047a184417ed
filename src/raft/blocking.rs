//! Waits for storage: work that may block runs on a thread of its own, and a callback becomes a future.

use std::io;

use tokio::sync::oneshot;

use crate::storage::{Done, ExportDone, SnapshotFile, StateStore, Wal};

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

/// A [`Done`] whose call can be awaited. A writer that went away without calling it is an error.
pub(super) fn awaited() -> (Done, impl Future<Output = io::Result<()>> + Send) {
    let (sender, receiver) = oneshot::channel();
    let done: Done = Box::new(move |result| {
        // Nobody waits any more when the Raft core stopped in between.
        let _ = sender.send(result);
    });
    (done, async move { receiver.await.unwrap_or_else(|_| Err(io::Error::other("the log's writer has stopped"))) })
}

/// An [`ExportDone`] whose call can be awaited.
pub(super) fn awaited_file() -> (ExportDone, impl Future<Output = io::Result<SnapshotFile>> + Send) {
    let (sender, receiver) = oneshot::channel();
    let done: ExportDone = Box::new(move |result| {
        // Nobody waits any more when the Raft core stopped in between.
        let _ = sender.send(result);
    });
    (done, async move { receiver.await.unwrap_or_else(|_| Err(io::Error::other("the state's writer has stopped"))) })
}
