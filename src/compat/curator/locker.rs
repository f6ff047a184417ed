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
    owed: Owed,
}

/// Whether dropping it must release the mutex.
#[derive(Debug, PartialEq, Eq)]
enum Owed {
    Release,
    Nothing,
}

impl<S: LockService> Locker<S> {
    /// Waits for the mutex.
    pub async fn new(mutex: &InterProcessMutex<S>, task: &Task) -> Result<Self, CuratorError> {
        mutex.acquire(task).await?;
        Ok(Self { mutex: mutex.clone(), task: task.clone(), owed: Owed::Release })
    }

    /// Waits for at most this duration. Returns `None` if the mutex was not free in time.
    pub async fn within(
        mutex: &InterProcessMutex<S>,
        task: &Task,
        wait: Duration,
    ) -> Result<Option<Self>, CuratorError> {
        let acquired = mutex.acquire_within(task, wait).await?;
        Ok(acquired.then(|| Self { mutex: mutex.clone(), task: task.clone(), owed: Owed::Release }))
    }

    /// Releases the mutex and returns the result.
    pub async fn close(mut self) -> Result<(), CuratorError> {
        self.owed = Owed::Nothing;
        self.mutex.release(&self.task).await
    }
}

impl<S: LockService> Drop for Locker<S> {
    fn drop(&mut self) {
        if self.owed == Owed::Release {
            // The guard is dropped first, so its release has begun when the call of the release ends.
            drop(self.mutex.take(&self.task));
        }
    }
}
