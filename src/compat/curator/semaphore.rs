//! The semaphore: a limited number of leases at the same time.

use std::time::Duration;

use super::error::in_time;
use super::{CuratorError, CuratorFramework};
use crate::client::{HoldState, HoldWatch, LockRequest, Permit};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, LockValue};
use crate::mutex::Mutex;
use crate::service::LockService;

/// A semaphore under a path. It is fair. Curator's `InterProcessSemaphore` is the same here.
///
/// - Several leases are granted together or not at all: two clients that each want three of four leases never hold two
///   each. Leases are returned one by one.
/// - The cluster stores the limit. A client that gives another limit is refused.
#[derive(Debug)]
pub struct InterProcessSemaphoreV2<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    /// The limit that this client gives; `None` if it uses the limit in the cluster.
    max_leases: Option<u32>,
    data: Mutex<Option<String>>,
}

impl<S: LockService> InterProcessSemaphoreV2<S> {
    /// Creates a semaphore with this number of leases. All clients of the path must give the same number.
    pub fn new(curator: &CuratorFramework<S>, path: &str, max_leases: u32) -> Self {
        Self::with(curator, path, Some(max_leases))
    }

    /// Creates a semaphore whose number of leases is stored in the cluster and can change.
    pub fn with_count(count: &SharedCount<S>) -> Self {
        Self::with(&count.curator, &count.path, None)
    }

    fn with(curator: &CuratorFramework<S>, path: &str, max_leases: Option<u32>) -> Self {
        Self { curator: curator.clone(), path: path.to_owned(), max_leases, data: Mutex::default() }
    }

    /// Sets a text that is kept with each later lease and shown to all clients.
    pub fn set_node_data(&self, data: &str) -> Result<(), CuratorError> {
        LockValue::parse(data)?;
        *self.data.lock() = Some(data.to_owned());
        Ok(())
    }

    /// Waits for a lease, as long as the session lives.
    pub async fn acquire(&self) -> Result<SemaphoreLease, CuratorError> {
        let mut entered = self.enter(1, |request| request).await?;
        entered.pop().ok_or_else(|| CuratorError::IllegalState { path: self.path.clone(), why: "granted no lease" })
    }

    /// Waits for this number of leases. Zero, and more than the limit, are refused at once.
    pub async fn acquire_many(&self, count: u32) -> Result<Vec<SemaphoreLease>, CuratorError> {
        self.enter(count, |request| request).await
    }

    /// Waits for at most this duration for a lease; `None` if none was free in time.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<SemaphoreLease>, CuratorError> {
        let entered = in_time(self.enter(1, |request| request.wait(wait)).await)?;
        Ok(entered.and_then(|mut leases| leases.pop()))
    }

    /// Waits for at most `wait` for this number of leases. Returns `None`, and holds no lease, if they were not free in
    /// time.
    pub async fn acquire_many_within(
        &self,
        count: u32,
        wait: Duration,
    ) -> Result<Option<Vec<SemaphoreLease>>, CuratorError> {
        in_time(self.enter(count, |request| request.wait(wait)).await)
    }

    /// Returns a lease to the semaphore.
    pub async fn return_lease(&self, mut lease: SemaphoreLease) -> Result<(), CuratorError> {
        lease.close().await
    }

    /// Returns leases to the semaphore. Tries all of them, and returns the first error.
    pub async fn return_all(&self, leases: Vec<SemaphoreLease>) -> Result<(), CuratorError> {
        let mut first = Ok(());
        for mut lease in leases {
            first = first.and(lease.close().await);
        }
        first
    }

    /// The holders of leases and the waiters, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    async fn enter(
        &self,
        count: u32,
        wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>,
    ) -> Result<Vec<SemaphoreLease>, CuratorError> {
        let session = self.curator.session().await?;
        let data = self.data.lock().clone();
        let request = session.lock(&self.path).permits(count, self.max_leases);
        let request = match &data {
            Some(data) => request.value(data),
            None => request,
        };
        let guard = wait(request).acquire().await?;
        let token = guard.token();
        Ok(guard
            .into_permits()
            .map(|permit| SemaphoreLease { permit: Some(permit), token, data: data.clone() })
            .collect())
    }
}

/// One lease. Dropping it returns it. Other leases that were acquired together with it stay held.
#[derive(Debug)]
#[must_use = "dropping it returns the lease"]
pub struct SemaphoreLease {
    /// `None` after the lease was returned.
    permit: Option<Permit>,
    token: FencingToken,
    data: Option<String>,
}

impl SemaphoreLease {
    /// Returns the lease. A second call does nothing.
    pub async fn close(&mut self) -> Result<(), CuratorError> {
        if let Some(permit) = self.permit.take() {
            permit.release().await?;
        }
        Ok(())
    }

    /// The text that was set when the lease was acquired.
    #[must_use]
    pub fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    /// The fencing token. Leases that were acquired together share it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// How certain it is that the lease is held. A lease that was returned counts as lost.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.permit.as_ref().map_or(HoldState::Lost, Permit::state)
    }

    /// A watch of the hold, for its loss and for requests to release it; `None` after the lease was returned.
    #[must_use]
    pub fn watch(&self) -> Option<HoldWatch> {
        self.permit.as_ref().map(Permit::watch)
    }
}

/// The number of leases of a semaphore, stored in the cluster for all its clients.
#[derive(Debug)]
pub struct SharedCount<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
}

impl<S: LockService> SharedCount<S> {
    /// Creates the count of the semaphore under this path. Sends no request.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        Self { curator: curator.clone(), path: path.to_owned() }
    }

    /// Sets the count. If it is higher, waiters get leases at once. If it is lower, no lease ends, and none is granted
    /// until enough leases have been returned.
    pub async fn set_count(&self, count: u32) -> Result<(), CuratorError> {
        Ok(self.curator.client().set_semaphore(&self.path, count).await?)
    }

    /// The current count; `None` if none was set and no client uses the semaphore.
    pub async fn count(&self) -> Result<Option<u32>, CuratorError> {
        Ok(self.curator.client().inspect(&self.path).await?.value.limit)
    }
}
