//! The lock by `SETNX` and `GETSET`: the value is the time at which it is over; who swaps an over one first has it.
//!
//! | there | here |
//! | --- | --- |
//! | losers write, too: every poll moves the holder's end | a loser changes nothing |
//! | the time is the caller's, read once before the loop | the cluster's, read at each try |
//! | the final block deletes, held or not | only what is held can be given back, once |

use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError, Lease};
use crate::model::{FencingToken, HolderView, LogTime};
use crate::service::LockService;

/// See the module.
#[derive(Debug, Clone)]
pub struct GetSetLock<S: LockService> {
    client: Client<S>,
}

/// What `GETSET` answers.
#[derive(Debug)]
pub enum Swapped<S: LockService> {
    /// The old value was over: the caller has the lock.
    Won(GetSetGuard<S>),
    /// Somebody has it until then; nothing was written.
    Lost(LogTime),
}

/// A lock that was got, and the only thing that gives it back.
#[derive(Debug)]
pub struct GetSetGuard<S: LockService> {
    lease: Box<Lease<S>>,
}

impl<S: LockService> GetSetLock<S> {
    /// In the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// `GET`: when it is over; nothing where nobody has it.
    pub async fn get(&self, key: &str) -> Result<Option<LogTime>, ClientError> {
        // A hold without an end is never over.
        let deadline = |holder: &HolderView| holder.deadline.unwrap_or(LogTime(u64::MAX));
        Ok(self.client.inspect(key).await?.value.holders.first().map(deadline))
    }

    /// `SETNX`: the lock where nobody has it.
    pub async fn set_nx(&self, key: &str, timeout: Duration) -> Result<Option<GetSetGuard<S>>, ClientError> {
        Ok(held_is_none(self.client.lease(key).duration(timeout).take().await)?
            .map(|lease| GetSetGuard { lease: Box::new(lease) }))
    }

    /// `GETSET`: of those who find an over value one wins; the others see the winner's.
    pub async fn get_set(&self, key: &str, timeout: Duration) -> Result<Swapped<S>, ClientError> {
        loop {
            if let Some(guard) = self.set_nx(key, timeout).await? {
                return Ok(Swapped::Won(guard));
            }
            // Where it vanished in between it is tried again.
            if let Some(end) = self.get(key).await? {
                return Ok(Swapped::Lost(end));
            }
        }
    }

    /// The whole loop: waits in the queue instead of polling.
    pub async fn lock(
        &self,
        key: &str,
        timeout: Duration,
        wait: Duration,
    ) -> Result<Option<GetSetGuard<S>>, ClientError> {
        let taken = self.client.lease(key).duration(timeout).wait(wait).take().await;
        Ok(held_is_none(taken)?.map(|lease| GetSetGuard { lease: Box::new(lease) }))
    }
}

impl<S: LockService> GetSetGuard<S> {
    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// When it is over.
    #[must_use]
    pub fn until(&self) -> LogTime {
        self.lease.deadline()
    }

    /// Gives it back; false where it was over.
    pub async fn unlock(self) -> Result<bool, ClientError> {
        gone_is_false(self.lease.release().await)
    }
}
