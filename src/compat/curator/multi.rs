//! Several locks that are used as one.

use std::sync::Arc;
use std::time::Duration;

use super::error::in_time;
use super::releases::Held;
use super::{CuratorError, CuratorFramework};
use crate::client::{HoldWatch, SetRequest};
use crate::model::FencingToken;
use crate::service::LockService;

/// Several paths as one lock. They are granted together or not at all, at the same time and within one wait. Curator
/// acquires them one by one, each with the whole wait, and releases them again if one cannot be acquired.
///
/// The lock is not reentrant: a second acquire is refused. Clones are the same lock.
#[derive(Debug, Clone)]
pub struct InterProcessMultiLock<S: LockService> {
    curator: CuratorFramework<S>,
    paths: Arc<[String]>,
    owner: Arc<str>,
    held: Arc<Held>,
}

impl<S: LockService> InterProcessMultiLock<S> {
    /// Creates a lock of these paths. Sends no request.
    pub fn new<'a>(curator: &CuratorFramework<S>, paths: impl IntoIterator<Item = &'a str>) -> Self {
        let paths = paths.into_iter().map(str::to_owned).collect();
        Self { curator: curator.clone(), paths, owner: curator.draw("multi").into(), held: Arc::default() }
    }

    /// Waits for all locks, as long as the session lives.
    pub async fn acquire(&self) -> Result<(), CuratorError> {
        self.enter(|request| request).await
    }

    /// Waits for at most this duration for all locks together. Returns false, and holds none of them, if they were not
    /// free in time.
    pub async fn acquire_within(&self, wait: Duration) -> Result<bool, CuratorError> {
        Ok(in_time(self.enter(|request| request.wait(wait)).await)?.is_some())
    }

    /// Releases all locks.
    pub async fn release(&self) -> Result<(), CuratorError> {
        self.held.release(|| self.paths.join(", ")).await
    }

    /// Whether all locks are held through this value.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.held.is_held()
    }

    /// The fencing token of this path's grant, while all locks are held.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<FencingToken> {
        self.held.token(path)
    }

    /// A watch of this path's hold, for its loss and for requests to release it. The lock is lost as soon as one of its
    /// paths is lost.
    #[must_use]
    pub fn watch(&self, path: &str) -> Option<HoldWatch> {
        self.held.watch(path)
    }

    async fn enter(&self, wait: impl FnOnce(SetRequest<S>) -> SetRequest<S>) -> Result<(), CuratorError> {
        let session = self.curator.session().await?;
        let request = session.locks(self.paths.iter().map(String::as_str)).owner(&self.owner);
        self.held.put(wait(request).acquire().await?);
        Ok(())
    }
}
