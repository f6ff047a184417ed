//! The mutex that nobody enters twice, and that every task with the value may give back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::in_time;
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
    lease: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    guard: Option<LockGuard>,
    /// A release is not answered yet.
    giving_back: usize,
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
        let Some(guard) = self.lease().guard.take() else {
            return Err(CuratorError::IllegalState { path: self.path.to_string(), why: "it is not acquired" });
        };
        let _giving_back = GivingBack::new(&self.lease);
        guard.release().await?;
        Ok(())
    }

    /// Whether it is held through this value. A release counts once the cluster has answered it.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        0 < self.lease().giving_back || self.token().is_some()
    }

    /// The fencing token, while it is held.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        let lease = self.lease();
        let held = lease.guard.as_ref().filter(|guard| guard.state() != HoldState::Lost);
        held.map(LockGuard::token)
    }

    /// A look at the hold: for its loss, and for requests to give it up.
    #[must_use]
    pub fn watch(&self) -> Option<HoldWatch> {
        self.lease().guard.as_ref().map(LockGuard::watch)
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
        self.lease().guard = Some(guard);
        Ok(())
    }

    fn lease(&self) -> MutexGuard<'_, Held> {
        lock(&self.lease)
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A release on its way.
struct GivingBack<'a>(&'a Mutex<Held>);

impl<'a> GivingBack<'a> {
    fn new(held: &'a Mutex<Held>) -> Self {
        lock(held).giving_back += 1;
        Self(held)
    }
}

impl Drop for GivingBack<'_> {
    fn drop(&mut self) {
        lock(self.0).giving_back -= 1;
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
