//! The lock by `SETNX` and `GETSET`: the value is the time at which the lock expires. The first caller that replaces an
//! expired value has the lock.
//!
//! | original | here |
//! | --- | --- |
//! | callers without the lock write, too, so every poll moves the holder's expiry | a refused request changes nothing |
//! | the time is the caller's, read once before the loop | the time is the cluster's, read in each attempt |
//! | the final block deletes the key, held or not | only a held lock can be released, and only once |

use std::time::Duration;

use crate::client::{Client, ClientError, Lease};
use crate::compat::{false_if_gone, none_if_held};
use crate::model::{FencingToken, HolderView, LockView, LogTime};
use crate::service::LockService;

/// Locks by `GETSET` in one namespace.
#[derive(Debug, Clone)]
pub struct GetSetLock<S: LockService> {
    client: Client<S>,
}

/// The result of `GETSET`.
#[derive(Debug)]
pub enum Swapped<S: LockService> {
    /// The old value had expired, so the caller has the lock.
    Won(GetSetGuard<S>),
    /// The lock is not free until this time, as [`get`](GetSetLock::get) returns it; nothing was written.
    Lost(LogTime),
}

/// An acquired lock. Only this value can release it.
#[derive(Debug)]
pub struct GetSetGuard<S: LockService> {
    lease: Box<Lease<S>>,
}

impl<S: LockService> GetSetLock<S> {
    /// Creates the lock client for the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// `GET`: returns when the lock expires, or `None` if it is free. A lock that an ended hold keeps closed expires
    /// when it opens. The result is the largest time for a hold without a deadline, and for a lock without a holder for
    /// which a request for several locks waits.
    pub async fn get(&self, key: &str) -> Result<Option<LogTime>, ClientError> {
        const NEVER: LogTime = LogTime(u64::MAX);
        let LockView { holders, closed, waiters, .. } = self.client.inspect(key).await?.value;
        let held = holders.first().map(|holder: &HolderView| holder.deadline.unwrap_or(NEVER));
        let opens = closed.iter().map(|closing| closing.until).max();
        Ok(held.or(opens).or((!waiters.is_empty()).then_some(NEVER)))
    }

    /// `SETNX`: acquires the lock if it is free.
    pub async fn set_nx(&self, key: &str, timeout: Duration) -> Result<Option<GetSetGuard<S>>, ClientError> {
        Ok(none_if_held(self.client.lease(key).duration(timeout).take().await)?
            .map(|lease| GetSetGuard { lease: Box::new(lease) }))
    }

    /// `GETSET`: of the callers that find an expired value, one acquires the lock, and the others get the new value.
    pub async fn get_set(&self, key: &str, timeout: Duration) -> Result<Swapped<S>, ClientError> {
        loop {
            if let Some(guard) = self.set_nx(key, timeout).await? {
                return Ok(Swapped::Won(guard));
            }
            // If the lock became free in between, try again.
            if let Some(end) = self.get(key).await? {
                return Ok(Swapped::Lost(end));
            }
        }
    }

    /// Runs the whole loop of the original. It waits in the queue instead of polling.
    pub async fn lock(
        &self,
        key: &str,
        timeout: Duration,
        wait: Duration,
    ) -> Result<Option<GetSetGuard<S>>, ClientError> {
        let taken = self.client.lease(key).duration(timeout).wait(wait).take().await;
        Ok(none_if_held(taken)?.map(|lease| GetSetGuard { lease: Box::new(lease) }))
    }
}

impl<S: LockService> GetSetGuard<S> {
    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// The log time at which the lock expires.
    #[must_use]
    pub fn until(&self) -> LogTime {
        self.lease.deadline()
    }

    /// Releases the lock. Returns false if it had expired. After an error it can be repeated.
    pub async fn unlock(&self) -> Result<bool, ClientError> {
        false_if_gone(self.lease.release().await)
    }
}
