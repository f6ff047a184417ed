//! The reentrant mutex.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::error::in_time;
use super::releases::{ReleaseCall, Releases};
use super::revoker::{Listener, Revocation, listen};
use super::{CuratorError, CuratorFramework, Task};
use crate::client::{ClientError, HoldState, HoldWatch, LockGuard, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, Reentry};
use crate::mutex::Mutex;
use crate::service::LockService;

/// A mutex that its owner may acquire again. Each acquire needs a release, and the last release frees the mutex. It is
/// fair. Clones are the same mutex; dropping the last one releases the holds of its tasks.
#[derive(Clone)]
pub struct InterProcessMutex<S: LockService> {
    curator: CuratorFramework<S>,
    path: Arc<str>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// The guards of each task's acquisitions; never an empty list.
    entered: BTreeMap<Task, Vec<LockGuard>>,
    releases: Releases<Task>,
    listener: Option<Listener>,
    /// One task for each hold while a listener is set. Each task ends with its hold.
    listening: JoinSet<()>,
}

impl Shared {
    /// The guard of a task's newest acquisition.
    fn guard(&self, task: &Task) -> Option<&LockGuard> {
        self.entered.get(task)?.last()
    }

    fn is_held_by(&self, task: &Task) -> bool {
        self.guard(task).is_some_and(|guard| guard.state() != HoldState::Lost)
    }
}

impl<S: LockService> InterProcessMutex<S> {
    /// Creates a mutex under this path. Sends no request.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        Self { curator: curator.clone(), path: path.into(), shared: Arc::default() }
    }

    /// Waits for the mutex as long as the session lives. Fails if the wait would close a cycle of owners that wait for
    /// each other.
    pub async fn acquire(&self, task: &Task) -> Result<(), CuratorError> {
        self.enter(task, |request| request).await
    }

    /// Waits for at most this duration. Returns false if the mutex was not free in time; the task then no longer waits
    /// in the queue.
    pub async fn acquire_within(&self, task: &Task, wait: Duration) -> Result<bool, CuratorError> {
        let entered = self.enter(task, |request| request.wait(wait)).await;
        Ok(in_time(entered)?.is_some())
    }

    /// Undoes one acquire of the same task. After an error other than
    /// [`IllegalMonitorState`](CuratorError::IllegalMonitorState) the acquire is undone for this task, too: the hold
    /// was lost before, or the cluster did not answer in time.
    pub async fn release(&self, task: &Task) -> Result<(), CuratorError> {
        let Some((guard, call)) = self.take(task) else {
            let refused = || CuratorError::IllegalMonitorState { path: self.path.to_string() };
            return self.shared.lock().releases.is_unanswered(|of| of == task).then_some(()).ok_or_else(refused);
        };
        let released = guard.release().await;
        self.shared.lock().releases.end(call);
        released?;
        Ok(())
    }

    /// Whether any task of this process holds the mutex through this value.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let shared = self.shared.lock();
        shared.entered.keys().any(|task| shared.is_held_by(task)) || shared.releases.is_pending(|_| true)
    }

    /// Whether this task holds the mutex (`isOwnedByCurrentThread`).
    #[must_use]
    pub fn is_owned_by(&self, task: &Task) -> bool {
        let shared = self.shared.lock();
        shared.is_held_by(task) || shared.releases.is_pending(|of| of == task)
    }

    /// The fencing token of this task's hold, which is the same for all its acquisitions.
    #[must_use]
    pub fn token(&self, task: &Task) -> Option<FencingToken> {
        let shared = self.shared.lock();
        let guard = shared.guard(task)?;
        (guard.state() != HoldState::Lost).then(|| guard.token())
    }

    /// A watch of this task's hold, for its loss and for requests to release it.
    #[must_use]
    pub fn watch(&self, task: &Task) -> Option<HoldWatch> {
        self.shared.lock().guard(task).map(LockGuard::watch)
    }

    /// The holders and waiters, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        Ok(participants(self.curator.client(), &self.path).await?)
    }

    /// Sets a listener that is called each time another client asks a task of this mutex to release; see
    /// [`Revoker`](super::Revoker). It applies to later acquisitions.
    pub fn make_revocable(&self, listener: impl Fn(Revocation) + Send + Sync + 'static) {
        self.shared.lock().listener = Some(Arc::new(listener));
    }

    async fn enter(
        &self,
        task: &Task,
        wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>,
    ) -> Result<(), CuratorError> {
        // A lost hold cannot be acquired again before all its acquires are released. Those releases would otherwise
        // free the new hold too early.
        if let Some(lost) = self.lost(task) {
            return Err(lost.into());
        }
        let session = self.curator.session().await?;
        let request = session.lock(&self.path).owner(task.name()).reentry(Reentry::Count);
        let guard = wait(request).acquire().await?;
        let mut shared = self.shared.lock();
        let outermost = !shared.entered.contains_key(task);
        if let Some(listener) = shared.listener.clone().filter(|_| outermost) {
            while shared.listening.try_join_next().is_some() {}
            shared.listening.spawn(listen(guard.watch(), task.clone(), listener));
        }
        shared.entered.entry(task.clone()).or_default().push(guard);
        Ok(())
    }

    fn lost(&self, task: &Task) -> Option<ClientError> {
        let shared = self.shared.lock();
        let guard = shared.guard(task)?;
        let lost = guard.state() == HoldState::Lost;
        lost.then(|| ClientError::SessionLost { session: guard.session(), reason: None, why: None })
    }

    /// Takes the newest acquisition of a task out for its release. The call must be dropped after the guard.
    pub(super) fn take(&self, task: &Task) -> Option<(LockGuard, ReleaseCall)> {
        let Shared { entered, releases, .. } = &mut *self.shared.lock();
        let guards = entered.get_mut(task)?;
        let guard = guards.pop()?;
        if guards.is_empty() {
            entered.remove(task);
        }
        let call = releases.begin(task, [guard.changes()]);
        Some((guard, call))
    }
}

impl<S: LockService> fmt::Debug for InterProcessMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path).finish_non_exhaustive()
    }
}
