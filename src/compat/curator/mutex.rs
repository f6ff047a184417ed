//! The reentrant mutex.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::error::in_time;
use super::revoker::{Listener, Revocation, listen};
use super::{CuratorError, CuratorFramework, Task};
use crate::client::{ClientError, HoldState, HoldWatch, LockGuard, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, Reentry};
use crate::service::LockService;

/// A mutex that its owner may enter again: each acquire needs its release, and the last one frees it. Fair. Clones are the
/// same mutex; dropping the last one gives back what its tasks hold.
pub struct InterProcessMutex<S: LockService> {
    curator: CuratorFramework<S>,
    path: Arc<str>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    entered: BTreeMap<Task, Entered>,
    listener: Option<Listener>,
    /// One a hold, as long as somebody listens; they end with the holds.
    listening: JoinSet<()>,
}

/// What one task has entered.
#[derive(Default)]
struct Entered {
    guards: Vec<LockGuard>,
    /// Releases that are not answered yet: as long as the cluster may not know, it counts as held.
    giving_back: usize,
}

impl Entered {
    fn is_held(&self) -> bool {
        0 < self.giving_back || self.guards.last().is_some_and(|guard| guard.state() != HoldState::Lost)
    }
}

impl<S: LockService> InterProcessMutex<S> {
    /// A mutex under this path. Nothing is sent yet.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        Self { curator: curator.clone(), path: path.into(), shared: Arc::default() }
    }

    /// Waits for it, as long as the session lives. An owner that waits for another owner that waits for it is refused.
    pub async fn acquire(&self, task: &Task) -> Result<(), CuratorError> {
        self.enter(task, |request| request).await
    }

    /// Waits at most so long; false where it was not free in time, and then nothing of it is left in the queue.
    pub async fn acquire_within(&self, task: &Task, wait: Duration) -> Result<bool, CuratorError> {
        let entered = self.enter(task, |request| request.wait(wait)).await;
        Ok(in_time(entered)?.is_some())
    }

    /// Undoes one acquire of the same task. An error other than [`IllegalMonitorState`](CuratorError::IllegalMonitorState)
    /// means that the hold was lost before; it counts as given back all the same.
    pub async fn release(&self, task: &Task) -> Result<(), CuratorError> {
        let Some(guard) = self.pop(task) else {
            return Err(CuratorError::IllegalMonitorState { path: self.path.to_string() });
        };
        let _giving_back = GivingBack::new(&self.shared, task);
        guard.release().await?;
        Ok(())
    }

    /// Whether any task of this process holds it through this mutex. A release counts once the cluster has answered it.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.shared().entered.values().any(Entered::is_held)
    }

    /// Whether this task holds it (`isOwnedByCurrentThread`).
    #[must_use]
    pub fn is_owned_by(&self, task: &Task) -> bool {
        self.shared().entered.get(task).is_some_and(Entered::is_held)
    }

    /// The fencing token of this task's hold: the same however often it was entered.
    #[must_use]
    pub fn token(&self, task: &Task) -> Option<FencingToken> {
        let shared = self.shared();
        let guard = shared.entered.get(task)?.guards.last()?;
        (guard.state() != HoldState::Lost).then(|| guard.token())
    }

    /// A look at this task's hold: for its loss, and for requests to give it up.
    #[must_use]
    pub fn watch(&self, task: &Task) -> Option<HoldWatch> {
        self.shared().entered.get(task)?.guards.last().map(LockGuard::watch)
    }

    /// Who holds it and who waits, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    /// Calls this each time that somebody asks for the lock while a task of this mutex holds it; see
    /// [`Revoker`](super::Revoker). It holds for what is acquired from now on.
    pub fn make_revocable(&self, listener: impl Fn(Revocation) + Send + Sync + 'static) {
        self.shared().listener = Some(Arc::new(listener));
    }

    async fn enter(
        &self,
        task: &Task,
        wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>,
    ) -> Result<(), CuratorError> {
        // What was lost is not entered again before its own releases: they would free the new hold too early.
        if let Some(lost) = self.lost(task) {
            return Err(lost.into());
        }
        let session = self.curator.session().await?;
        let request = session.lock(&self.path).owner(task.name()).reentry(Reentry::Count);
        let guard = wait(request).acquire().await?;
        let mut shared = self.shared();
        let outermost = shared.entered.get(task).is_none_or(|entered| entered.guards.is_empty());
        if let Some(listener) = shared.listener.clone().filter(|_| outermost) {
            while shared.listening.try_join_next().is_some() {}
            shared.listening.spawn(listen(guard.watch(), task.clone(), listener));
        }
        shared.entered.entry(task.clone()).or_default().guards.push(guard);
        Ok(())
    }

    fn lost(&self, task: &Task) -> Option<ClientError> {
        let shared = self.shared();
        let guard = shared.entered.get(task)?.guards.last()?;
        let lost = guard.state() == HoldState::Lost;
        lost.then(|| ClientError::SessionLost { session: guard.session(), reason: None, why: None })
    }

    /// Takes the newest entry of a task away.
    pub(super) fn pop(&self, task: &Task) -> Option<LockGuard> {
        let mut shared = self.shared();
        let entered = shared.entered.get_mut(task)?;
        let guard = entered.guards.pop();
        if entered.guards.is_empty() && entered.giving_back == 0 {
            shared.entered.remove(task);
        }
        guard
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A release on its way.
struct GivingBack<'a> {
    shared: &'a Mutex<Shared>,
    task: &'a Task,
}

impl<'a> GivingBack<'a> {
    fn new(shared: &'a Mutex<Shared>, task: &'a Task) -> Self {
        lock(shared).entered.entry(task.clone()).or_default().giving_back += 1;
        Self { shared, task }
    }
}

impl Drop for GivingBack<'_> {
    fn drop(&mut self) {
        let mut shared = lock(self.shared);
        let Some(entered) = shared.entered.get_mut(self.task) else { return };
        entered.giving_back -= 1;
        if entered.guards.is_empty() && entered.giving_back == 0 {
            shared.entered.remove(self.task);
        }
    }
}

impl<S: LockService> Clone for InterProcessMutex<S> {
    fn clone(&self) -> Self {
        Self { curator: self.curator.clone(), path: self.path.clone(), shared: self.shared.clone() }
    }
}

impl<S: LockService> fmt::Debug for InterProcessMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path).finish_non_exhaustive()
    }
}
