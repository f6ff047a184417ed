//! The lock by a unique index: the caller that can insert `{lock_id, expireAt}` has the lock.
//!
//! | original | here |
//! | --- | --- |
//! | a crash leaves the record permanently, unless another program checks `expireAt` | it ends automatically |
//! | every caller deletes by `lock_id` | only the caller that inserted it can delete it |
//! | every exception means *held* | unreachable, refused, expired and held are different results |

use std::time::Duration;

use crate::client::{Client, ClientError, Lease};
use crate::compat::{false_if_gone, none_if_held};
use crate::service::LockService;

/// Unique-index locks in one namespace.
#[derive(Debug, Clone)]
pub struct UniqueIndexLock<S: LockService> {
    client: Client<S>,
}

/// A record that this caller inserted.
#[derive(Debug)]
pub struct Inserted<S: LockService> {
    /// The lease that represents the record.
    pub lease: Lease<S>,
}

impl<S: LockService> UniqueIndexLock<S> {
    /// Returns the unique-index locks of the client's namespace. Sends no request.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// Inserts the record. Returns `None` if the index already contains one.
    pub async fn insert(&self, lock_id: &str, expire: Duration) -> Result<Option<Inserted<S>>, ClientError> {
        Ok(none_if_held(self.client.lease(lock_id).duration(expire).take().await)?.map(|lease| Inserted { lease }))
    }
}

impl<S: LockService> Inserted<S> {
    /// Changes `expireAt`. Returns false if the record has ended.
    pub async fn refresh(&mut self, expire: Duration) -> Result<bool, ClientError> {
        false_if_gone(self.lease.refresh_for(expire).await)
    }

    /// Deletes the record. Returns false if it had ended. After an error it can be repeated.
    pub async fn delete(&self) -> Result<bool, ClientError> {
        false_if_gone(self.lease.release().await)
    }
}
