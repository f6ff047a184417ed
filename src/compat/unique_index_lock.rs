//! The lock by a unique index: who can insert `{lock_id, expireAt}` has it.
//!
//! | there | here |
//! | --- | --- |
//! | a crash leaves the record for ever, unless something reads `expireAt` | it ends by itself |
//! | everybody deletes by `lock_id` | only who inserted it |
//! | every exception means *held* | unreachable, refused, expired and held are different answers |

use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError, Lease};
use crate::service::LockService;

/// See the module.
#[derive(Debug, Clone)]
pub struct UniqueIndexLock<S: LockService> {
    client: Client<S>,
}

/// A record that was inserted.
#[derive(Debug)]
pub struct Inserted<S: LockService> {
    /// The lease behind it.
    pub lease: Lease<S>,
}

impl<S: LockService> UniqueIndexLock<S> {
    /// In the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// The record where there was none; nothing where the index has one.
    pub async fn insert(&self, lock_id: &str, expire: Duration) -> Result<Option<Inserted<S>>, ClientError> {
        Ok(held_is_none(self.client.lease(lock_id).duration(expire).take().await)?.map(|lease| Inserted { lease }))
    }
}

impl<S: LockService> Inserted<S> {
    /// Moves `expireAt`; false where the record has gone.
    pub async fn refresh(&mut self, expire: Duration) -> Result<bool, ClientError> {
        gone_is_false(self.lease.refresh_for(expire).await)
    }

    /// Deletes the record; false where it has gone.
    pub async fn delete(self) -> Result<bool, ClientError> {
        gone_is_false(self.lease.release().await)
    }
}
