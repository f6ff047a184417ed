//! The token lock over find-and-modify: a document with `_id`, `expireAt` and `token`; whoever sees his own token has it.
//!
//! | there | here |
//! | --- | --- |
//! | an expired document is deleted by whoever finds it, if it is as it was seen | it has ended by itself, by the cluster's clock |
//! | a refresh after the end revives it | it does not: another may have been told that it is free |
//! | who waits sleeps a whole expiration | he is woken by the release |

use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError, Lease};
use crate::model::{FencingToken, Handle, HolderView};
use crate::service::LockService;

/// A lock that was acquired: the secret that releases and refreshes it, and the public number that resources compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// `token`.
    pub secret: Handle,
    /// The fencing token of the grant.
    pub fencing: FencingToken,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct TokenLock<S: LockService> {
    client: Client<S>,
}

impl<S: LockService> TokenLock<S> {
    /// In the client's namespace.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client }
    }

    /// A new token where the lock was free, or nothing. It is not reentrant.
    pub async fn acquire(&self, key: &str, expiration: Duration) -> Result<Option<Token>, ClientError> {
        Ok(held_is_none(self.client.lease(key).duration(expiration).take().await)?.map(token))
    }

    /// The same, after a wait in the queue of at most so long.
    pub async fn acquire_within(
        &self,
        key: &str,
        expiration: Duration,
        wait: Duration,
    ) -> Result<Option<Token>, ClientError> {
        Ok(held_is_none(self.client.lease(key).duration(expiration).wait(wait).take().await)?.map(token))
    }

    /// True where this token's document was there.
    pub async fn release(&self, key: &str, token: &Token) -> Result<bool, ClientError> {
        gone_is_false(self.client.release(key, &token.secret).await)
    }

    /// Lets it expire so long from now. True where this token's document was there, whether or not anything changed.
    pub async fn refresh(&self, key: &str, token: &Token, expiration: Duration) -> Result<bool, ClientError> {
        gone_is_false(self.client.refresh(key, &token.secret, expiration).await)
    }

    /// Who has it, until when, under which fencing token.
    pub async fn find(&self, key: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(key).await?.value.holders.into_iter().next())
    }
}

fn token<S: LockService>(lease: Lease<S>) -> Token {
    Token { secret: lease.handle().clone(), fencing: lease.token() }
}
