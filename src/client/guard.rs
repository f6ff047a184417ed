//! A held lock.

use std::future::Future;
use std::time::Duration;

use super::presence::{Errand, Tie};
use super::{ClientError, HoldState, Lost};
use crate::model::{FencingToken, Grant, LockName, LogTime, Outcome, Reply, SessionId};

/// Holds a lock, a share of one, or permits of a semaphore, and keeps the session alive. Dropping it gives the lock
/// back: the session's keeper repeats the release until it is answered or the session ends.
///
/// It may be handed to another task. It is lost with its session, which it tells *before* the cluster may grant the
/// lock to another: pass [`token`](Self::token) to the resource, which refuses older ones, and let work run under
/// [`run`](Self::run).
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    tie: Tie,
    name: LockName,
    token: FencingToken,
    waited: Duration,
    owed: Owed,
}

/// Whether dropping the guard still has to give the lock back.
#[derive(Debug, PartialEq, Eq)]
enum Owed {
    Release,
    Nothing,
}

/// A lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Log index of the entry that did it.
    pub index: u64,
    /// Log time of that entry.
    pub at: LogTime,
}

impl Released {
    pub(super) fn from_reply(reply: Reply) -> Result<Self, ClientError> {
        if !matches!(reply.outcome, Outcome::Released { .. }) {
            return Err(ClientError::unexpected(reply.outcome));
        }
        Ok(Self { index: reply.index, at: reply.stamp })
    }
}

impl LockGuard {
    pub(super) fn new(tie: Tie, name: LockName, grant: &Grant) -> Self {
        let waited = Duration::from_millis(grant.waited_ms);
        Self { tie, name, token: grant.token, waited, owed: Owed::Release }
    }

    /// The fencing token of this grant, larger than that of every earlier one.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Which lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Whose.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.tie.presence.id
    }

    /// How long it stood in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long it is surely held if nothing more is answered; zero once it is lost. The clock is read at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.tie.presence.valid_for()
    }

    /// How sure it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.tie.presence.state()
    }

    /// Waits until it is lost, and tells so before another may be granted the lock.
    pub async fn lost(&self) -> Lost {
        let end = self.tie.presence.lost().await;
        Lost { lock: self.name.clone(), token: self.token, session: self.session(), reason: end.reason() }
    }

    /// Does work while the lock is held. If the lock is lost first, the work is dropped at that moment, before another
    /// may be granted the lock.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let output = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost),
            output = work => output,
        };
        // The last stretch of the work may have taken longer than the lease.
        if self.state() == HoldState::Lost { Err(self.lost().await) } else { Ok(output) }
    }

    /// Gives the lock back and says what became of it. Abandoned halfway it is given back all the same.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.owed = Owed::Nothing;
        let (name, token) = (self.name.clone(), self.token);
        let reply = self.tie.ask(|done| Errand::Release { name, token, done }).await?;
        Released::from_reply(reply)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.owed == Owed::Release {
            self.tie.leave(Errand::Release { name: self.name.clone(), token: self.token, done: None });
        }
    }
}
