//! The counter lock over find-and-modify: a record with `key`, `value` and `expire`. The caller whose increment makes
//! `value` 1 has the lock.
//!
//! | original | here |
//! | --- | --- |
//! | the increment of a caller without the lock moves the holder's `expire` | a refused request changes nothing |
//! | `expire` is compared with the caller's clock | it is compared with the cluster's time |
//! | every caller that knows the key may release | only the caller that acquired it may release |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, ClientError, Lease};
use crate::compat::{false_if_gone, none_if_held};
use crate::model::{FencingToken, HolderView, Invalid, LogTime, Refusal};
use crate::mutex::Mutex;
use crate::service::LockService;

/// The record of a held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRecord {
    /// Always 1, the value of the holder. A caller whose increment returned 2 changes nothing.
    pub value: u64,
    /// The last log time at which the lock is held.
    pub expire: LogTime,
    /// The fencing token of the grant.
    pub token: FencingToken,
}

/// The locks of one caller. Dropping it releases no lock: each lock ends at its `expire`.
pub struct CounterLock<S: LockService> {
    client: Client<S>,
    held: Mutex<BTreeMap<String, Arc<Lease<S>>>>,
}

impl<S: LockService> CounterLock<S> {
    /// Creates the caller's set of locks, which is empty.
    #[must_use]
    pub fn new(client: Client<S>) -> Self {
        Self { client, held: Mutex::default() }
    }

    /// Acquires the lock for this duration if it is free. Returns whether it did.
    pub async fn get_lock(&self, key: &str, expire: Duration) -> Result<bool, ClientError> {
        let Some(lease) = none_if_held(self.client.lease(key).duration(expire).take().await)? else { return Ok(false) };
        self.held.lock().insert(key.to_owned(), Arc::new(lease));
        Ok(true)
    }

    /// Releases a lock of this caller. Returns false if it has ended or was never acquired. After an error the lock
    /// remains one of this caller's, who can release it again.
    pub async fn release_lock(&self, key: &str) -> Result<bool, ClientError> {
        if key.is_empty() {
            return Err(Invalid::new("key", "a name: an empty condition would release everything", "nothing").into());
        }
        let Some(lease) = self.held.lock().get(key).cloned() else { return Ok(false) };
        let released = false_if_gone(lease.release().await)?;
        let mut held = self.held.lock();
        // Another call may have acquired the lock again in between.
        if held.get(key).is_some_and(|held| Arc::ptr_eq(held, &lease)) {
            held.remove(key);
        }
        Ok(released)
    }

    /// Returns the record if the lock is held.
    pub async fn get_by_key(&self, key: &str) -> Result<Option<CounterRecord>, ClientError> {
        let holders = self.client.inspect(key).await?.value.holders;
        // A hold without a deadline never expires.
        let expire = |holder: &HolderView| holder.deadline.unwrap_or(LogTime(u64::MAX));
        Ok(holders.first().map(|holder| CounterRecord { value: 1, expire: expire(holder), token: holder.token }))
    }

    /// Removes a record that has expired and is still as the caller saw it. Returns false if it was extended or has not
    /// expired.
    pub async fn remove_expire(&self, key: &str, seen: CounterRecord) -> Result<bool, ClientError> {
        match self.client.remove_expired(key, seen.token, seen.expire).await {
            Ok(()) => Ok(true),
            Err(ClientError::NotAcquired { .. } | ClientError::Refused(Refusal::Changed { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The fencing token of a lock that this caller acquired.
    #[must_use]
    pub fn token(&self, key: &str) -> Option<FencingToken> {
        self.held.lock().get(key).map(|lease| lease.token())
    }
}
