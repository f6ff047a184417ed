//! The mutex that nobody enters twice, and that every task with the value may give back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::in_time;
use super::held::Held;
use super::{CuratorError, CuratorFramework};
use crate::client::{HoldState, HoldWatch, LockGuard, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, Reentry};
use crate::service::LockService;

/// A mutex that is not reentrant: who acquires it twice waits for itself, until its time is over or another task that
/// shares the value releases. Fair. Clones are the same mutex.
pub struct InterProcessSemaphoreMutex<S: LockService> {
    curator: CuratorFramework<S>,
    path: Arc<str>,
    owner: Arc<str>,
    lease: Arc<Held<LockGuard>>,
}

impl<S: LockService> InterProcessSemaphoreMutex<S> {
    /// A mutex under this path. Nothing is sent yet.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        let owner = curator.draw("mutex").into();
        Self { curator: curator.clone(), path: path.into(), owner, lease: Arc::default() }
    }

    /// Waits for it, as long as the session lives; also for itself.
    pub async fn acquire(&self) -> Result<(), CuratorError> {
        self.enter(|request| request).await
    }

    /// Waits at most so long; false where it was not free in time. What is held already stays held.
    pub async fn acquire_within(&self, wait: Duration) -> Result<bool, CuratorError> {
        let entered = self.enter(|request| request.wait(wait)).await;
        Ok(in_time(entered)?.is_some())
    }

    /// Gives it back, from whichever task.
    pub async fn release(&self) -> Result<(), CuratorError> {
        let Some((guard, _giving_back)) = self.lease.take() else {
            return Err(CuratorError::IllegalState { path: self.path.to_string(), why: "it is not acquired" });
        };
        guard.release().await?;
        Ok(())
    }

    /// Whether it is held through this value. A release counts once the cluster has answered it.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lease.is_held(|guard| guard.state() != HoldState::Lost)
    }

    /// The fencing token, while it is held.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.lease.of(|guard| (guard.state() != HoldState::Lost).then(|| guard.token()))
    }

    /// A look at the hold: for its loss, and for requests to give it up.
    #[must_use]
    pub fn watch(&self) -> Option<HoldWatch> {
        self.lease.of(|guard| Some(guard.watch()))
    }

    /// Who holds it and who waits, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    async fn enter(&self, wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>) -> Result<(), CuratorError> {
        let session = self.curator.session().await?;
        let request = session.lock(&self.path).owner(&self.owner).reentry(Reentry::Wait);
        let guard = wait(request).acquire().await?;
        // What it takes the place of was lost, or this one would not have been granted.
        self.lease.put(guard);
        Ok(())
    }
}

impl<S: LockService> Clone for InterProcessSemaphoreMutex<S> {
    fn clone(&self) -> Self {
        let (path, owner, lease) = (self.path.clone(), self.owner.clone(), self.lease.clone());
        Self { curator: self.curator.clone(), path, owner, lease }
    }
}

impl<S: LockService> fmt::Debug for InterProcessSemaphoreMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex").field("path", &self.path).finish_non_exhaustive()
    }
}
