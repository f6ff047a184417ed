//! A mutex that is acquired for a scope, so that a mutex that was not acquired cannot be released by mistake.

use std::time::Duration;

use super::{CuratorError, InterProcessMutex, Task};
use crate::service::LockService;

/// One acquisition of a mutex. Dropping it releases the mutex.
#[derive(Debug)]
#[must_use = "dropping it releases the mutex"]
pub struct Locker<S: LockService> {
    mutex: InterProcessMutex<S>,
    task: Task,
    /// Whether dropping it must release the mutex.
    open: bool,
}

impl<S: LockService> Locker<S> {
    /// Waits for the mutex.
    pub async fn new(mutex: &InterProcessMutex<S>, task: &Task) -> Result<Self, CuratorError> {
        mutex.acquire(task).await?;
        Ok(Self { mutex: mutex.clone(), task: task.clone(), open: true })
    }

    /// Waits for at most this duration. Returns `None` if the mutex was not free in time.
    pub async fn within(
        mutex: &InterProcessMutex<S>,
        task: &Task,
        wait: Duration,
    ) -> Result<Option<Self>, CuratorError> {
        let acquired = mutex.acquire_within(task, wait).await?;
        Ok(acquired.then(|| Self { mutex: mutex.clone(), task: task.clone(), open: true }))
    }

    /// Releases the mutex and returns the result.
    pub async fn close(mut self) -> Result<(), CuratorError> {
        self.open = false;
        self.mutex.release(&self.task).await
    }
}

impl<S: LockService> Drop for Locker<S> {
    fn drop(&mut self) {
        if self.open {
            // The guard is dropped first, so its release has begun when the call of the release ends.
            drop(self.mutex.take(&self.task));
        }
    }
}
