//! The token lock over find-and-modify: a document with `_id`, `expireAt` and `token`. The caller that finds its own
//! token has the lock.
//!
//! | original | here |
//! | --- | --- |
//! | the first caller that finds an expired, unchanged document deletes it | it ends automatically, by the cluster's time |
//! | a refresh after the end restores the lock | it does not, because another caller may have seen that the lock is free |
//! | a waiter sleeps for a whole expiration | the release wakes the waiter |

use std::time::Duration;

use crate::client::{Client, ClientError, Lease};
use crate::compat::{false_if_gone, none_if_held};
use crate::model::{FencingToken, Handle, HolderView};
use crate::service::LockService;

/// An acquired lock: the secret that releases and refreshes it, and the public number that resources compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The field `token`, the secret of the holder.
    pub secret: Handle,
    /// The fencing token of the grant.
    pub fencing: FencingToken,
}

/// Token locks in one namespace.
#[derive(Debug, Clone)]
pub struct TokenLock<S: LockService> {
    client: Client<S>,
}

impl<S: LockService> TokenLock<S> {
    /// Creates the lock client for the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// Returns a new token if the lock was free, otherwise `None`. The lock is not reentrant.
    pub async fn acquire(&self, key: &str, expiration: Duration) -> Result<Option<Token>, ClientError> {
        Ok(none_if_held(self.client.lease(key).duration(expiration).take().await)?.map(token))
    }

    /// Like [`acquire`](Self::acquire), but waits in the queue for at most `wait`.
    pub async fn acquire_within(
        &self,
        key: &str,
        expiration: Duration,
        wait: Duration,
    ) -> Result<Option<Token>, ClientError> {
        Ok(none_if_held(self.client.lease(key).duration(expiration).wait(wait).take().await)?.map(token))
    }

    /// Releases the lock. Returns true if this token held it. After a call without an answer, false may mean that it
    /// released the lock.
    pub async fn release(&self, key: &str, token: &Token) -> Result<bool, ClientError> {
        false_if_gone(self.client.release(key, &token.secret).await)
    }

    /// Sets the expiry to this duration from now. Returns true if this token holds the lock, even if nothing changed.
    pub async fn refresh(&self, key: &str, token: &Token, expiration: Duration) -> Result<bool, ClientError> {
        false_if_gone(self.client.refresh(key, &token.secret, expiration).await)
    }

    /// Returns the holder, its deadline and its fencing token.
    pub async fn find(&self, key: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(key).await?.value.holders.into_iter().next())
    }
}

fn token<S: LockService>(lease: Lease<S>) -> Token {
    Token { secret: lease.handle().clone(), fencing: lease.token() }
}
