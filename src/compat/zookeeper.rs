//! ZooKeeper's lock recipes: the fair one over ephemeral sequential nodes, the unfair one over a single ephemeral node.
//!
//! | ZooKeeper | here |
//! | --- | --- |
//! | ephemeral node | ends with its session: a hold, or a place in the queue |
//! | sequence number | the order of the queue; the grant's fencing token |
//! | list the children, watch the next smaller one | the cluster grants in order, and tells the one whose turn it is |
//! | `lock` `unlock` `isOwner` `getId` | [`lock`](WriteLock::lock) [`unlock`](WriteLock::unlock) [`is_owner`](WriteLock::is_owner) [`id`](WriteLock::id) |
//!
//! - A create whose answer got lost is repeated under its own request number: it never stands in the queue twice.
//! - A new session inherits nothing of an old one, whatever the old one still seems to hold.

use std::fmt;
use std::time::Duration;

use super::Participant;
use super::participant::participants;
use crate::client::{ClientError, HoldState, LockGuard, LockRequest, Session};
use crate::model::FencingToken;
use crate::service::LockService;

/// Whom a release wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The one that has waited longest.
    Fair,
    /// Anyone of those that wait, or one that comes along.
    Unfair,
}

/// A lock under a path, as one client uses it. Dropping it gives the lock back.
pub struct WriteLock<S: LockService> {
    session: Session<S>,
    path: String,
    order: Order,
    node: Option<LockGuard>,
}

impl<S: LockService> WriteLock<S> {
    /// First come, first served; a release wakes the successor alone.
    pub fn fair(session: &Session<S>, path: &str) -> Self {
        Self::new(session, path, Order::Fair)
    }

    /// A newcomer may pass those that wait, and some may wait for ever. A release still wakes one alone. It never passes a
    /// fair waiter of the same path.
    pub fn unfair(session: &Session<S>, path: &str) -> Self {
        Self::new(session, path, Order::Unfair)
    }

    fn new(session: &Session<S>, path: &str, order: Order) -> Self {
        Self { session: session.clone(), path: path.to_owned(), order, node: None }
    }

    /// Waits for the lock, as long as the session lives. Who holds it already is told the same token again.
    pub async fn lock(&mut self) -> Result<FencingToken, ClientError> {
        let request = self.request();
        self.enter(request).await
    }

    /// As [`lock`](Self::lock), but `None` where it was not free in time; nothing is left in the queue then.
    pub async fn lock_within(&mut self, wait: Duration) -> Result<Option<FencingToken>, ClientError> {
        let request = self.request().wait(wait);
        in_time(self.enter(request).await)
    }

    /// As [`lock`](Self::lock), but `None` where it is not free now.
    pub async fn try_lock(&mut self) -> Result<Option<FencingToken>, ClientError> {
        let request = self.request().try_once();
        in_time(self.enter(request).await)
    }

    /// Gives the lock back; false where it was not held through this value.
    pub async fn unlock(&mut self) -> Result<bool, ClientError> {
        let Some(node) = self.node.take() else { return Ok(false) };
        node.release().await.map(|_| true)
    }

    /// Whether it is surely held, on this client's clock.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.id().is_some()
    }

    /// The fencing token, while it is held: what the number of the node is good for, and larger for each later holder.
    #[must_use]
    pub fn id(&self) -> Option<FencingToken> {
        let held = self.node.as_ref().filter(|node| node.state() != HoldState::Lost);
        held.map(LockGuard::token)
    }

    /// The hold, for its loss and its validity.
    #[must_use]
    pub fn guard(&self) -> Option<&LockGuard> {
        self.node.as_ref()
    }

    /// Who holds it and who waits, in order: the sorted children.
    pub async fn contenders(&self) -> Result<Vec<Participant>, ClientError> {
        participants(&self.session.client(), &self.path).await
    }

    fn request(&self) -> LockRequest<S> {
        let request = self.session.lock(&self.path);
        match self.order {
            Order::Fair => request,
            Order::Unfair => request.unfair(),
        }
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

fn in_time(entered: Result<FencingToken, ClientError>) -> Result<Option<FencingToken>, ClientError> {
    match entered {
        Ok(token) => Ok(Some(token)),
        Err(ClientError::NotAcquired { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl<S: LockService> fmt::Debug for WriteLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteLock").field("path", &self.path).field("id", &self.id()).finish_non_exhaustive()
    }
}
