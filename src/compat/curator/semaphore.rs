//! The semaphore: leases, so many at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::in_time;
use super::{CuratorError, CuratorFramework};
use crate::client::{HoldState, HoldWatch, LockGuard, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, LockValue};
use crate::service::LockService;

/// A semaphore under a path (`InterProcessSemaphore` is the same here). Fair.
///
/// - Several leases are granted together or not at all: two that want three of four never hold two each.
/// - The limit is the cluster's. Who names another one is refused.
pub struct InterProcessSemaphoreV2<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    /// The limit that this client names; `None` where it takes the cluster's.
    max_leases: Option<u32>,
    data: Mutex<Option<String>>,
}

impl<S: LockService> InterProcessSemaphoreV2<S> {
    /// A semaphore with so many leases. Every client of the path has to name the same number.
    pub fn new(curator: &CuratorFramework<S>, path: &str, max_leases: u32) -> Self {
        Self::with(curator, path, Some(max_leases))
    }

    /// A semaphore whose number of leases is kept in the cluster, and may change.
    pub fn with_count(count: &SharedCount<S>) -> Self {
        Self::with(&count.curator, &count.path, None)
    }

    fn with(curator: &CuratorFramework<S>, path: &str, max_leases: Option<u32>) -> Self {
        Self { curator: curator.clone(), path: path.to_owned(), max_leases, data: Mutex::default() }
    }

    /// A text kept with each lease that is acquired from now on, and shown to everybody.
    pub fn set_node_data(&self, data: &str) -> Result<(), CuratorError> {
        LockValue::parse(data)?;
        *self.data.lock().unwrap_or_else(PoisonError::into_inner) = Some(data.to_owned());
        Ok(())
    }

    /// Waits for a lease, as long as the session lives.
    pub async fn acquire(&self) -> Result<SemaphoreLease, CuratorError> {
        Ok(SemaphoreLease::of(&self.enter(1, |request| request).await?))
    }

    /// Waits for so many leases. More than there are, and none at all, are refused at once.
    pub async fn acquire_many(&self, count: u32) -> Result<Vec<SemaphoreLease>, CuratorError> {
        Ok(leases(&self.enter(count, |request| request).await?, count))
    }

    /// Waits at most so long for a lease; `None` where there was none in time.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<SemaphoreLease>, CuratorError> {
        let entered = in_time(self.enter(1, |request| request.wait(wait)).await)?;
        Ok(entered.map(|bundle| SemaphoreLease::of(&bundle)))
    }

    /// Waits at most so long for so many leases; `None` where they were not there in time, and then none is held.
    pub async fn acquire_many_within(
        &self,
        count: u32,
        wait: Duration,
    ) -> Result<Option<Vec<SemaphoreLease>>, CuratorError> {
        let entered = in_time(self.enter(count, |request| request.wait(wait)).await)?;
        Ok(entered.map(|bundle| leases(&bundle, count)))
    }

    /// Gives a lease back.
    pub async fn return_lease(&self, mut lease: SemaphoreLease) -> Result<(), CuratorError> {
        lease.close().await
    }

    /// Gives leases back. All of them are tried; the first error is told.
    pub async fn return_all(&self, leases: Vec<SemaphoreLease>) -> Result<(), CuratorError> {
        let mut told = Ok(());
        for mut lease in leases {
            told = told.and(lease.close().await);
        }
        told
    }

    /// Who holds leases and who waits for some, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    async fn enter(
        &self,
        count: u32,
        wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>,
    ) -> Result<Arc<Bundle>, CuratorError> {
        let session = self.curator.session().await?;
        let data = self.data.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = session.lock(&self.path).permits(count, self.max_leases);
        let request = match &data {
            Some(data) => request.value(data),
            None => request,
        };
        let guard = wait(request).acquire().await?;
        Ok(Arc::new(Bundle {
            token: guard.token(),
            data,
            left: Mutex::new(Left { guard: Some(guard), leases: count }),
        }))
    }
}

fn leases(bundle: &Arc<Bundle>, count: u32) -> Vec<SemaphoreLease> {
    (0..count).map(|_| SemaphoreLease::of(bundle)).collect()
}

/// Leases that were granted together.
#[derive(Debug)]
struct Bundle {
    token: FencingToken,
    data: Option<String>,
    left: Mutex<Left>,
}

/// What is left of them.
#[derive(Debug)]
struct Left {
    guard: Option<LockGuard>,
    leases: u32,
}

impl Bundle {
    /// Takes one lease out; answers the hold with the last one.
    fn leave(&self) -> Option<LockGuard> {
        let mut left = self.left();
        left.leases -= 1;
        if left.leases == 0 { left.guard.take() } else { None }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One lease. Dropping it returns it. Leases that were acquired together become free with the last of them.
#[derive(Debug)]
#[must_use = "dropping it returns the lease"]
pub struct SemaphoreLease {
    bundle: Arc<Bundle>,
    returned: Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    No,
    Yes,
}

impl SemaphoreLease {
    fn of(bundle: &Arc<Bundle>) -> Self {
        Self { bundle: bundle.clone(), returned: Returned::No }
    }

    /// Returns it. A second time does nothing.
    pub async fn close(&mut self) -> Result<(), CuratorError> {
        if self.returned == Returned::Yes {
            return Ok(());
        }
        self.returned = Returned::Yes;
        if let Some(guard) = self.bundle.leave() {
            guard.release().await?;
        }
        Ok(())
    }

    /// The text that was set when it was acquired.
    #[must_use]
    pub fn data(&self) -> Option<&str> {
        self.bundle.data.as_deref()
    }

    /// The fencing token; leases that were acquired together share it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.bundle.token
    }

    /// How sure it is. One that was returned is lost.
    #[must_use]
    pub fn state(&self) -> HoldState {
        let left = self.bundle.left();
        let held = left.guard.as_ref().filter(|_| self.returned == Returned::No);
        held.map_or(HoldState::Lost, LockGuard::state)
    }

    /// A look at the hold behind it, for its loss and for requests to give it up; `None` once it was returned.
    #[must_use]
    pub fn watch(&self) -> Option<HoldWatch> {
        self.bundle.left().guard.as_ref().filter(|_| self.returned == Returned::No).map(LockGuard::watch)
    }
}

impl Drop for SemaphoreLease {
    fn drop(&mut self) {
        if self.returned == Returned::No {
            drop(self.bundle.leave());
        }
    }
}

/// How many leases a semaphore has, kept in the cluster for all its clients.
pub struct SharedCount<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
}

impl<S: LockService> SharedCount<S> {
    /// The count of the semaphore under this path. Nothing is sent yet.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        Self { curator: curator.clone(), path: path.to_owned() }
    }

    /// Sets it. A higher one lets waiters in at once; a lower one evicts nobody, but lets nobody in before enough leases
    /// are returned.
    pub async fn set_count(&self, count: u32) -> Result<(), CuratorError> {
        Ok(self.curator.client().set_semaphore(&self.path, count).await?)
    }

    /// The count now; `None` where none was set and nobody uses the semaphore.
    pub async fn count(&self) -> Result<Option<u32>, CuratorError> {
        Ok(self.curator.client().inspect(&self.path).await?.value.limit)
    }
}

impl<S: LockService> fmt::Debug for InterProcessSemaphoreV2<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<S: LockService> fmt::Debug for SharedCount<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCount").field("path", &self.path).finish_non_exhaustive()
    }
}
