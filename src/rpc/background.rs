//! Owner of the background tasks of a server or client: the tasks end with it at the latest. Also the signal by which a
//! server stops.

use std::mem;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::mutex::Mutex;

/// Background tasks of one server or client. Dropping the last clone aborts those that still run.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Runs a task until it ends, or until its owner is dropped. Removes the tasks that have ended.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// Waits until all tasks have ended. Dropping the returned future aborts the others.
    pub(crate) async fn ended(&self) {
        let mut running = mem::take(&mut *self.0.lock());
        while running.join_next().await.is_some() {}
    }
}

/// Waits for the stop signal, or until its sender is dropped, because then the server has ended, too.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}
