//! ZooKeeper's lock recipes: the fair recipe with ephemeral sequential nodes, and the unfair one with a single
//! ephemeral node.
//!
//! | ZooKeeper | here |
//! | --- | --- |
//! | ephemeral node | a hold or a place in the queue, which ends with its session |
//! | sequence number | the order of the queue; the grant's fencing token |
//! | list the children, watch the next smaller one | the cluster grants in order, and notifies only the next holder |
//! | `lock` `unlock` `isOwner` `getId` | [`lock`](WriteLock::lock) [`unlock`](WriteLock::unlock) [`is_owner`](WriteLock::is_owner) [`id`](WriteLock::id) |
//!
//! - A request whose answer was lost is repeated with the same request number, so it is never in the queue twice.
//! - A new session inherits nothing from an old one, even while the old one still seems to hold the lock.

use std::time::Duration;

use super::participant::participants;
use super::{Participant, none_if_held};
use crate::client::{ClientError, HoldState, LockGuard, LockRequest, Session};
use crate::model::FencingToken;
use crate::service::LockService;

/// A lock under a path, for one client. Dropping it releases the lock.
#[derive(Debug)]
pub struct WriteLock<S: LockService> {
    session: Session<S>,
    path: String,
    fair: bool,
    node: Option<LockGuard>,
}

impl<S: LockService> WriteLock<S> {
    /// Creates a lock that is granted in the order of requests. A release wakes only the next waiter.
    pub fn fair(session: &Session<S>, path: &str) -> Self {
        Self { session: session.clone(), path: path.to_owned(), fair: true, node: None }
    }

    /// Creates a lock that a new request may get before earlier waiters, which can therefore starve. A release wakes
    /// only one waiter. An unfair request never gets the lock before a fair waiter of the same path.
    pub fn unfair(session: &Session<S>, path: &str) -> Self {
        Self { fair: false, ..Self::fair(session, path) }
    }

    /// Waits for the lock as long as the session lives. If this value already holds it, returns the same token again.
    pub async fn lock(&mut self) -> Result<FencingToken, ClientError> {
        let request = self.request();
        self.enter(request).await
    }

    /// Like [`lock`](Self::lock), but returns `None` if the lock was not free in time; this value then no longer waits
    /// in the queue.
    pub async fn lock_within(&mut self, wait: Duration) -> Result<Option<FencingToken>, ClientError> {
        let request = self.request().wait(wait);
        none_if_held(self.enter(request).await)
    }

    /// Like [`lock`](Self::lock), but returns `None` if the lock is not free now.
    pub async fn try_lock(&mut self) -> Result<Option<FencingToken>, ClientError> {
        let request = self.request().try_once();
        none_if_held(self.enter(request).await)
    }

    /// Releases the lock. Returns false if it was not held through this value.
    pub async fn unlock(&mut self) -> Result<bool, ClientError> {
        let Some(node) = self.node.take() else { return Ok(false) };
        node.release().await.map(|_| true)
    }

    /// Whether the lock is certainly held, by this client's clock.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.id().is_some()
    }

    /// The fencing token, while the lock is held. It replaces the sequence number of the node. Each later holder has a
    /// larger one.
    #[must_use]
    pub fn id(&self) -> Option<FencingToken> {
        let held = self.node.as_ref().filter(|node| node.state() != HoldState::Lost);
        held.map(LockGuard::token)
    }

    /// The guard of the hold, which reports its loss and its validity.
    #[must_use]
    pub fn guard(&self) -> Option<&LockGuard> {
        self.node.as_ref()
    }

    /// Returns the holders and waiters in order, like the sorted children of a node.
    pub async fn contenders(&self) -> Result<Vec<Participant>, ClientError> {
        participants(&self.session.client(), &self.path).await
    }

    fn request(&self) -> LockRequest<S> {
        let request = self.session.lock(&self.path);
        if self.fair { request } else { request.unfair() }
    }

    async fn enter(&mut self, request: LockRequest<S>) -> Result<FencingToken, ClientError> {
        if let Some(token) = self.id() {
            return Ok(token);
        }
        let node = request.acquire().await?;
        let token = node.token();
        self.node = Some(node);
        Ok(token)
    }
}
