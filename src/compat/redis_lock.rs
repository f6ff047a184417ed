//! The Redis lock: `SET key requestId NX PX ms`, and scripts that delete the key, or move its expiry, where its value is the
//! request's.
//!
//! | there | here |
//! | --- | --- |
//! | one Redis, whose end is the end of all locks | three nodes: while two of them run, lock and unlock work |
//! | a plain DEL by anybody | only by the request id |
//! | an expiry below its unit becomes "for ever" | it is refused |

use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError};
use crate::model::{FencingToken, Handle, HolderView};
use crate::service::LockService;

/// See the module.
#[derive(Debug, Clone)]
pub struct RedisLock<S: LockService> {
    client: Client<S>,
}

impl<S: LockService> RedisLock<S> {
    /// In the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// `SET key requestId NX PX expire`: true where the key was not there. Otherwise neither value nor expiry change.
    /// The request id has to be unique; it is never shown to others.
    pub async fn try_get_distributed_lock(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<bool, ClientError> {
        Ok(self.set_nx_px(key, request_id, expire).await?.is_some())
    }

    /// The same, answered with the fencing token.
    pub async fn set_nx_px(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<Option<FencingToken>, ClientError> {
        let request = self.client.lease(key).handle(Handle::parse(request_id)?).duration(expire);
        Ok(held_is_none(request.take().await)?.map(|lease| lease.token()))
    }

    /// The script: true where the value was the request's and the key was deleted.
    pub async fn release_distributed_lock(&self, key: &str, request_id: &str) -> Result<bool, ClientError> {
        gone_is_false(self.client.release(key, &Handle::parse(request_id)?).await)
    }

    /// The other script that clients bring, compare and extend: true where the value was the request's and the key now expires
    /// so long from now. A key that has run out is not revived.
    pub async fn extend_distributed_lock(
        &self,
        key: &str,
        request_id: &str,
        expire: Duration,
    ) -> Result<bool, ClientError> {
        gone_is_false(self.client.refresh(key, &Handle::parse(request_id)?, expire).await)
    }

    /// Who has the key, and until when.
    pub async fn get(&self, key: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(key).await?.value.holders.into_iter().next())
    }
}
