//! The lock by `INCR`: who gets 1 runs the job.
//!
//! | there | here |
//! | --- | --- |
//! | the counter is never set back: the job runs once in all time | it ends with its lease, or is reset by its holder |

use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError, Lease};
use crate::service::LockService;

/// See the module.
#[derive(Debug, Clone)]
pub struct IncrLock<S: LockService> {
    client: Client<S>,
}

/// What an increment got.
#[derive(Debug)]
pub enum Increment<S: LockService> {
    /// 1: the caller is the one.
    First(Box<Lease<S>>),
    /// More than 1: somebody else is.
    Later,
}

impl<S: LockService> Increment<S> {
    /// The number; how many came in between is of no importance, and not counted.
    #[must_use]
    pub fn value(&self) -> u64 {
        match self {
            Increment::First(_) => 1,
            Increment::Later => 2,
        }
    }
}

impl<S: LockService> IncrLock<S> {
    /// In the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// 1 where the key was missing; it goes missing again after so long.
    pub async fn incr(&self, key: &str, lease: Duration) -> Result<Increment<S>, ClientError> {
        let taken = held_is_none(self.client.lease(key).duration(lease).take().await)?;
        Ok(taken.map_or(Increment::Later, |lease| Increment::First(Box::new(lease))))
    }

    /// Lets the job run again: by the one who got 1. False where that had ended.
    pub async fn reset(&self, first: Box<Lease<S>>) -> Result<bool, ClientError> {
        gone_is_false(first.release().await)
    }
}
