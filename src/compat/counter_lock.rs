//! The counter lock over find-and-modify: a record with `key`, `value` and `expire`; whoever makes `value` 1 has the lock.
//!
//! | there | here |
//! | --- | --- |
//! | a loser's increment moves the holder's `expire` | a loser changes nothing |
//! | `expire` is compared with the caller's clock | with the cluster's, which no caller can be ahead of |
//! | anybody who knows the key may release | only who got it |

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{gone_is_false, held_is_none};
use crate::client::{Client, ClientError, Lease};
use crate::model::{FencingToken, HolderView, Invalid, LogTime, Refusal};
use crate::service::LockService;

/// The record of a lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRecord {
    /// 1: one has it, and a try that got 2 leaves no trace.
    pub value: u64,
    /// Held while log time is at most this.
    pub expire: LogTime,
    /// Which grant.
    pub token: FencingToken,
}

/// Locks of one caller. Dropping it gives nothing back: what is held ends with its `expire`.
pub struct CounterLock<S: LockService> {
    client: Client<S>,
    held: Mutex<BTreeMap<String, Lease<S>>>,
}

impl<S: LockService> CounterLock<S> {
    /// Nothing is held yet.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client, held: Mutex::default() }
    }

    /// True where nobody had the lock: it is the caller's for so long.
    pub async fn get_lock(&self, key: &str, expire: Duration) -> Result<bool, ClientError> {
        let Some(lease) = held_is_none(self.client.lease(key).duration(expire).take().await)? else { return Ok(false) };
        self.held().insert(key.to_owned(), lease);
        Ok(true)
    }

    /// Gives back what this caller got; false where that has ended, or was never got.
    pub async fn release_lock(&self, key: &str) -> Result<bool, ClientError> {
        if key.is_empty() {
            return Err(Invalid::new("key", "a name: an empty condition would release everything", "nothing").into());
        }
        let lease = self.held().remove(key);
        match lease {
            Some(lease) => gone_is_false(lease.release().await),
            None => Ok(false),
        }
    }

    /// The record, if somebody has the lock.
    pub async fn get_by_key(&self, key: &str) -> Result<Option<CounterRecord>, ClientError> {
        let holders = self.client.inspect(key).await?.value.holders;
        // A hold without an end never expires.
        let expire = |holder: &HolderView| holder.deadline.unwrap_or(LogTime(u64::MAX));
        Ok(holders.first().map(|holder| CounterRecord { value: 1, expire: expire(holder), token: holder.token }))
    }

    /// Removes a record that is over, if it is still the one that was seen: false where it was prolonged, or is not over.
    pub async fn remove_expire(&self, key: &str, seen: CounterRecord) -> Result<bool, ClientError> {
        match self.client.remove_expired(key, seen.token, seen.expire).await {
            Ok(()) => Ok(true),
            Err(ClientError::NotAcquired { .. } | ClientError::Refused(Refusal::Changed { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The fencing token of what this caller got.
    #[must_use]
    pub fn token(&self, key: &str) -> Option<FencingToken> {
        self.held().get(key).map(Lease::token)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Lease<S>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
