//! The owner of the tasks behind streams: they end with it at the latest.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

/// Running tasks of one server or client. When the last clone is dropped, what still runs is cut off.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Runs a task until it ends by itself, or with its owner. What has ended is forgotten.
    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// Waits until all have ended by themselves. Dropping the returned future cuts the rest off.
    pub(super) async fn ended(&self) {
        let mut running = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while running.join_next().await.is_some() {}
    }
}
