//! The lock by `INCR`: the caller that gets 1 runs the job.
//!
//! | original | here |
//! | --- | --- |
//! | the counter is never reset, so the job runs only once | it ends with its lease, or its holder resets it |

use std::time::Duration;

use crate::client::{Client, ClientError, Lease};
use crate::compat::{false_if_gone, none_if_held};
use crate::service::LockService;

/// Locks by `INCR` in one namespace.
#[derive(Debug, Clone)]
pub struct IncrLock<S: LockService> {
    client: Client<S>,
}

/// The result of an increment.
#[derive(Debug)]
pub enum Increment<S: LockService> {
    /// The result is 1: this caller runs the job.
    First(Box<Lease<S>>),
    /// The result is larger than 1: another caller runs the job.
    Later,
}

impl<S: LockService> Increment<S> {
    /// The value, 1 or 2. Further increments are not counted.
    #[must_use]
    pub fn value(&self) -> u64 {
        match self {
            Increment::First(_) => 1,
            Increment::Later => 2,
        }
    }
}

impl<S: LockService> IncrLock<S> {
    /// Creates the lock client for the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// Returns [`Increment::First`] if the key was missing. The key is removed again after this duration.
    pub async fn incr(&self, key: &str, lease: Duration) -> Result<Increment<S>, ClientError> {
        let taken = none_if_held(self.client.lease(key).duration(lease).take().await)?;
        Ok(taken.map_or(Increment::Later, |lease| Increment::First(Box::new(lease))))
    }

    /// Lets the job run again. Only the caller whose increment returned 1 can do this. Returns false if its lease had
    /// already ended. After an error it can be repeated.
    pub async fn reset(&self, first: &Lease<S>) -> Result<bool, ClientError> {
        false_if_gone(first.release().await)
    }
}
