//! The guard of several locks that are held together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::client::error::{ClientError, Lost};
use crate::client::guard::{LockGuard, run_while_held};
use crate::client::hold::{HoldState, Released, RevokeRequest};
#[cfg(feature = "cli")]
use crate::model::LogTime;
use crate::model::{FencingToken, LockName, SessionId};

/// Guard of several locks. It keeps their session alive. Dropping it releases all of them, as a [`LockGuard`] does.
///
/// The locks were granted at one moment and are independent from then on: one of them can be lost alone, by a break, a
/// hand-over or the end of its lease. The set is lost as soon as one of them is lost.
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct SetGuard {
    /// Sorted by the names of the locks; never empty.
    guards: Vec<LockGuard>,
}

impl From<LockGuard> for SetGuard {
    /// Turns the guard of one lock into a set.
    fn from(guard: LockGuard) -> Self {
        Self { guards: vec![guard] }
    }
}

impl SetGuard {
    /// Creates the guard of locks that were granted together, sorted by name.
    pub(crate) fn new(guards: Vec<LockGuard>) -> Self {
        Self { guards }
    }

    /// Returns the fencing token of this lock's grant; `None` if the set has no lock of this name.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(LockGuard::token)
    }

    /// Returns the fencing tokens by the names of their locks.
    #[must_use]
    pub fn tokens(&self) -> BTreeMap<LockName, FencingToken> {
        self.guards.iter().map(|guard| (guard.name().clone(), guard.token())).collect()
    }

    /// Returns the guards of the single locks, sorted by name.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Splits the set: from now on each guard releases its own lock.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Returns the session of the holds.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.guards[0].session()
    }

    /// Returns how long the request waited in the queues, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.guards[0].waited()
    }

    /// Returns how long all locks are certainly held if no further renewal is answered; zero once one of them is lost.
    /// Reads the clock at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.guards.iter().map(LockGuard::valid_for).min().unwrap_or_default()
    }

    /// Returns the newest deadlines of the leases and longest times of its holds, each with the log time of the entry
    /// that set it.
    #[cfg(feature = "cli")]
    pub(crate) fn ends(&self) -> impl Iterator<Item = (LogTime, LogTime)> {
        self.guards.iter().flat_map(|guard| guard.held.hold.ends())
    }

    /// Returns the time left until the end that its request chose; `None` if it chose none.
    #[cfg(feature = "cli")]
    pub(crate) fn left_at_most(&self) -> Option<Duration> {
        let left = |guard: &LockGuard| guard.held.hold.left_at_most(guard.held.session.state.clock.now());
        self.guards.iter().filter_map(left).min()
    }

    /// Returns the state of the lock that is least certain to be held.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.guards.iter().map(LockGuard::state).max().unwrap_or(HoldState::Held)
    }

    /// Waits until the first of its locks is lost, as [`LockGuard::lost`] does.
    pub async fn lost(&self) -> Lost {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Waits until another client asks the holder to release one of the locks. Returns each such request once, with the
    /// lock's name.
    pub async fn revoke_requested(&self) -> (LockName, RevokeRequest) {
        let requested = |guard| Box::pin(LockGuard::revoke_requested(guard));
        let (request, which, _) = select_all(self.guards.iter().map(requested)).await;
        (self.guards[which].name().clone(), request)
    }

    /// Runs work while all locks are held. If one of them is lost first, the work is dropped as by
    /// [`LockGuard::run`].
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while_held(work, || self.lost(), || self.state()).await
    }

    /// Releases all locks. Returns each answer by name, or the first error after all releases were tried. If the future
    /// is dropped, the session's task completes the releases.
    pub async fn release(self) -> Result<BTreeMap<LockName, Released>, ClientError> {
        let release = |guard: LockGuard| async move {
            let name = guard.name().clone();
            guard.release().await.map(|released| (name, released))
        };
        join_all(self.guards.into_iter().map(release)).await.into_iter().collect()
    }
}
