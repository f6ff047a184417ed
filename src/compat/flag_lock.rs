//! The lock by a flag: find-and-modify sets `locked` where it was false.
//!
//! | there | here |
//! | --- | --- |
//! | a crash leaves `locked` set for ever | it goes with its holder's session |
//! | the document must be there beforehand | a name that was never seen is free |
//! | anybody sets it back | only who set it |

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{gone_is_false, held_is_none};
use crate::client::{ClientError, LockGuard, Session};
use crate::service::LockService;

/// Flags that one session has set. They fall when it ends.
#[derive(Debug)]
pub struct FlagLock<S: LockService> {
    session: Session<S>,
    set: Mutex<BTreeMap<String, LockGuard>>,
}

impl<S: LockService> FlagLock<S> {
    /// No flag is set yet.
    #[must_use]
    pub fn new(session: Session<S>) -> Self {
        Self { session, set: Mutex::default() }
    }

    /// True where the flag was not set.
    pub async fn lock(&self, id: &str) -> Result<bool, ClientError> {
        let Some(guard) = held_is_none(self.session.lock(id).try_once().acquire().await)? else { return Ok(false) };
        self.set.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), guard);
        Ok(true)
    }

    /// True where this session had set it.
    pub async fn unlock(&self, id: &str) -> Result<bool, ClientError> {
        let guard = self.set.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        match guard {
            Some(guard) => gone_is_false(guard.release().await),
            None => Ok(false),
        }
    }
}
