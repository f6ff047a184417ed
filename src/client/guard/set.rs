//! Several locks that are held together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::client::error::{ClientError, Lost};
use crate::client::guard::LockGuard;
use crate::client::hold::{HoldState, Released, RevokeRequest};
use crate::model::{FencingToken, LockName, SessionId};

/// Holds several locks, and keeps their session alive. Dropping it releases all of them, as a [`LockGuard`] does.
///
/// They were granted at one moment, and are held one by one from then on: one of them can be lost alone, by a break, a
/// hand-over or the end of its lease. The set counts as lost with the first of them.
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct SetGuard {
    /// In the order of their names; never empty.
    guards: Vec<LockGuard>,
}

impl From<LockGuard> for SetGuard {
    /// The guard of one lock as that of a set.
    fn from(guard: LockGuard) -> Self {
        Self { guards: vec![guard] }
    }
}

impl SetGuard {
    /// The guard of locks that were granted together, in the order of their names.
    pub(crate) fn new(guards: Vec<LockGuard>) -> Self {
        Self { guards }
    }

    /// The fencing token of this lock's grant; `None` for a name that is not in the set.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(LockGuard::token)
    }

    /// The fencing tokens by name.
    #[must_use]
    pub fn tokens(&self) -> BTreeMap<LockName, FencingToken> {
        self.guards.iter().map(|guard| (guard.name().clone(), guard.token())).collect()
    }

    /// The guards of its locks, in the order of their names.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Takes it apart: each lock is released by its own guard from now on.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Session of the holds.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.guards[0].session()
    }

    /// How long it stood in the queues, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.guards[0].waited()
    }

    /// How long all of it is surely held if no further renewal is answered; zero once one of its locks is lost. Reads the clock
    /// at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.guards.iter().map(LockGuard::valid_for).min().unwrap_or_default()
    }

    /// How certain the least certain of its locks is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        let states = || self.guards.iter().map(LockGuard::state);
        let worst = [HoldState::Lost, HoldState::Unsure].into_iter().find(|bad| states().any(|state| state == *bad));
        worst.unwrap_or(HoldState::Held)
    }

    /// Waits until the first of its locks is lost, as [`LockGuard::lost`] does.
    pub async fn lost(&self) -> Lost {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Waits for a request to the holder to give up one of its locks, and returns each request once, with the lock's name.
    pub async fn revoke_requested(&self) -> (LockName, RevokeRequest) {
        let requested = |guard| Box::pin(LockGuard::revoke_requested(guard));
        let (request, which, _) = select_all(self.guards.iter().map(requested)).await;
        (self.guards[which].name().clone(), request)
    }

    /// Does work while all of it is held. If one of its locks is lost first, the work is dropped at that moment, before
    /// another may be granted that lock.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let output = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost),
            output = work => output,
        };
        // The last stretch of the work may have taken longer than the lease.
        if self.state() == HoldState::Lost { Err(self.lost().await) } else { Ok(output) }
    }

    /// Releases all locks and returns each answer by name, or the first error after all were tried. Abandoned halfway they are
    /// released all the same.
    pub async fn release(self) -> Result<BTreeMap<LockName, Released>, ClientError> {
        let release = |guard: LockGuard| async move {
            let name = guard.name().clone();
            guard.release().await.map(|released| (name, released))
        };
        join_all(self.guards.into_iter().map(release)).await.into_iter().collect()
    }
}
