//! Waits for storage: runs blocking work on a separate thread, and turns callbacks into futures.

use std::io;

use tokio::sync::oneshot;

use crate::storage::{Done, StateStore, Wal};

/// Runs work on snapshot files: on a blocking thread if the store may block, otherwise directly.
pub(super) async fn on_files<T: Send + 'static>(
    store: &dyn StateStore,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    may_wait(store.may_block(), work).await
}

/// Runs work on a blocking thread if it may wait for a disk, otherwise directly.
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

/// A [`Done`] callback and a future that waits for its call. The future fails if the writer dropped the callback
/// without calling it.
pub(super) fn awaited<T: Send + 'static>() -> (Done<T>, impl Future<Output = io::Result<T>> + Send) {
    let (sender, receiver) = oneshot::channel();
    let done: Done<T> = Box::new(move |result| {
        // The receiver is dropped if the Raft core has stopped meanwhile.
        drop(sender.send(result));
    });
    (done, async move { receiver.await.unwrap_or_else(|_| Err(io::Error::other("the writer has stopped"))) })
}
