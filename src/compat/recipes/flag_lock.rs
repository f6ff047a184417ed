//! A lock by a flag in a document: one find-and-modify sets `locked` to true if it was false.
//!
//! | original | here |
//! | --- | --- |
//! | a crash leaves `locked` set permanently | the lock ends with its holder's session |
//! | the document must exist before | an unknown name is a free lock |
//! | every client can reset it | only the session that set it can reset it |

use std::collections::BTreeMap;

use crate::client::{ClientError, LockGuard, Session};
use crate::compat::{false_if_gone, none_if_held};
use crate::mutex::Mutex;
use crate::service::LockService;

/// The flags that one session has set. They are reset when the session ends.
#[derive(Debug)]
pub struct FlagLock<S: LockService> {
    session: Session<S>,
    /// The guard of each flag that is set, by the id of its document.
    flags: Mutex<BTreeMap<String, LockGuard>>,
}

impl<S: LockService> FlagLock<S> {
    /// Creates an empty set of flags for this session.
    #[must_use]
    pub fn new(session: Session<S>) -> Self {
        Self { session, flags: Mutex::default() }
    }

    /// Sets the flag. Returns false if it is already set.
    pub async fn lock(&self, id: &str) -> Result<bool, ClientError> {
        let Some(guard) = none_if_held(self.session.lock(id).try_once().acquire().await)? else { return Ok(false) };
        self.flags.lock().insert(id.to_owned(), guard);
        Ok(true)
    }

    /// Resets the flag. Returns true if this session had set it.
    pub async fn unlock(&self, id: &str) -> Result<bool, ClientError> {
        let guard = self.flags.lock().remove(id);
        match guard {
            Some(guard) => false_if_gone(guard.release().await),
            None => Ok(false),
        }
    }
}
