//! The Redis lock: `SET key requestId NX PX ms`, and scripts that delete the key, or change its expiry, if its value is
//! the request id.
//!
//! | Redis | here |
//! | --- | --- |
//! | one Redis server, whose failure ends all locks | three nodes: lock and unlock work while two of them run |
//! | every caller can delete the key with DEL | only the request id can |
//! | an expiry below its unit becomes "no expiry" | it is refused |

use std::time::Duration;

use crate::client::{Client, ClientError};
use crate::compat::{false_if_gone, none_if_held};
use crate::model::{FencingToken, Handle, HolderView};
use crate::service::LockService;

/// Redis locks in one namespace.
#[derive(Debug, Clone)]
pub struct RedisLock<S: LockService> {
    client: Client<S>,
}

impl<S: LockService> RedisLock<S> {
    /// Creates the lock client for the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// `SET key requestId NX PX expire`: acquires the lock and returns true if the key did not exist. Otherwise neither
    /// value nor expiry change. The request id must be unique; it is never shown to other callers.
    pub async fn try_get_distributed_lock(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<bool, ClientError> {
        Ok(self.set_nx_px(key, request_id, expire).await?.is_some())
    }

    /// Acquires the lock like [`try_get_distributed_lock`](Self::try_get_distributed_lock), and returns the fencing
    /// token.
    pub async fn set_nx_px(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<Option<FencingToken>, ClientError> {
        let request = self.client.lease(key).handle(Handle::parse(request_id)?).duration(expire);
        Ok(none_if_held(request.take().await)?.map(|lease| lease.token()))
    }

    /// The release script: deletes the key and returns true if its value is the request id. After a call without an
    /// answer, false may mean that it deleted the key.
    pub async fn release_distributed_lock(&self, key: &str, request_id: &str) -> Result<bool, ClientError> {
        false_if_gone(self.client.release(key, &Handle::parse(request_id)?).await)
    }

    /// The common script to extend a lock: if the value is the request id, the key expires this duration from now, and
    /// the function returns true. An expired key is not restored.
    pub async fn extend_distributed_lock(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<bool, ClientError> {
        false_if_gone(self.client.refresh(key, &Handle::parse(request_id)?, expire).await)
    }

    /// Returns the holder of the key and its deadline.
    pub async fn get(&self, key: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(key).await?.value.holders.into_iter().next())
    }
}
