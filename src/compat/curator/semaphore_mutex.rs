//! The mutex that is not reentrant. Every task that has the value may release it.

use std::sync::Arc;
use std::time::Duration;

use super::error::in_time;
use super::releases::Held;
use super::{CuratorError, CuratorFramework};
use crate::client::{HoldWatch, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, Reentry};
use crate::service::LockService;

/// A mutex that is not reentrant: a second acquire waits until its time is over, or until another task releases the
/// mutex through the same value or a clone. It is fair. Clones are the same mutex.
#[derive(Debug, Clone)]
pub struct InterProcessSemaphoreMutex<S: LockService> {
    curator: CuratorFramework<S>,
    path: Arc<str>,
    owner: Arc<str>,
    held: Arc<Held>,
}

impl<S: LockService> InterProcessSemaphoreMutex<S> {
    /// Creates a mutex under this path. Sends no request.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        let owner = curator.draw("mutex").into();
        Self { curator: curator.clone(), path: path.into(), owner, held: Arc::default() }
    }

    /// Waits for the mutex as long as the session lives, even if this value already holds it.
    pub async fn acquire(&self) -> Result<(), CuratorError> {
        self.enter(|request| request).await
    }

    /// Waits for at most this duration. Returns false if the mutex was not free in time; an earlier hold of this value
    /// remains.
    pub async fn acquire_within(&self, wait: Duration) -> Result<bool, CuratorError> {
        let entered = self.enter(|request| request.wait(wait)).await;
        Ok(in_time(entered)?.is_some())
    }

    /// Releases the mutex. Any task may call this.
    pub async fn release(&self) -> Result<(), CuratorError> {
        self.held.release(|| self.path.to_string()).await
    }

    /// Whether the mutex is held through this value.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.held.is_held()
    }

    /// The fencing token, while the mutex is held.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.held.token(&self.path)
    }

    /// A watch of the hold, for its loss and for requests to release it.
    #[must_use]
    pub fn watch(&self) -> Option<HoldWatch> {
        self.held.watch(&self.path)
    }

    /// The holders and waiters, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    async fn enter(&self, wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>) -> Result<(), CuratorError> {
        let session = self.curator.session().await?;
        let request = session.lock(&self.path).owner(&self.owner).reentry(Reentry::Wait);
        self.held.put(wait(request).acquire().await?.into());
        Ok(())
    }
}
