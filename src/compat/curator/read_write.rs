//! The reentrant read-write lock: many readers or one writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::in_time;
use super::releases::{ReleaseCall, Releases};
use super::{CuratorError, CuratorFramework, Task};
use crate::client::{ClientError, HoldState, HoldWatch, LockGuard, LockRequest};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::model::{FencingToken, Mode};
use crate::mutex::Mutex;
use crate::service::LockService;

/// Many readers or one writer, in the order of requests: a reader that arrives after a waiting writer waits, too.
///
/// - The reads and writes of a task are counted on one hold. A writer may also read. Its last write release then turns
///   the hold into a shared one, and the task has a lock all the time.
/// - A reader that requests the write lock is refused at once. In Curator it would wait forever; see
///   [`upgrade`](Self::upgrade).
/// - Clones are the same lock. When the lock and all values of its sides are dropped, the holds of its tasks are
///   released.
#[derive(Debug, Clone)]
pub struct InterProcessReadWriteLock<S: LockService> {
    both: Arc<Both<S>>,
}

#[derive(Debug)]
struct Both<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    entered: BTreeMap<Task, Entered>,
    /// The changes of holds: releases and downgrades of a side, and upgrades, which are of the side of readers.
    releases: Releases<(Task, Side)>,
}

const BUSY: &str = "another call of the same task is in progress";

/// The acquisitions of one task. It has a hold while one of the counts is above zero, except while a call changes the
/// hold.
#[derive(Debug, Default)]
struct Entered {
    hold: Option<LockGuard>,
    writes: u32,
    reads: u32,
    /// The side that is being changed or released for the last time. It counts as held.
    changing: Option<Side>,
}

/// One side of a read-write lock: the exclusive lock of writers or the shared lock of readers.
#[derive(Debug)]
pub struct ReadWriteMutex<S: LockService> {
    both: Arc<Both<S>>,
    side: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

impl Entered {
    fn count(&self, side: Side) -> u32 {
        match side {
            Side::Read => self.reads,
            Side::Write => self.writes,
        }
    }

    fn count_mut(&mut self, side: Side) -> &mut u32 {
        match side {
            Side::Read => &mut self.reads,
            Side::Write => &mut self.writes,
        }
    }

    fn is_alive(&self) -> bool {
        self.changing.is_some() || self.hold.as_ref().is_some_and(|hold| hold.state() != HoldState::Lost)
    }

    fn is_over(&self) -> bool {
        self.reads == 0 && self.writes == 0 && self.changing.is_none()
    }
}

impl<S: LockService> InterProcessReadWriteLock<S> {
    /// Creates a lock under this path. Sends no request.
    pub fn new(curator: &CuratorFramework<S>, path: &str) -> Self {
        let (curator, path) = (curator.clone(), path.to_owned());
        Self { both: Arc::new(Both { curator, path, inside: Mutex::default() }) }
    }

    /// Returns the side of the readers.
    #[must_use]
    pub fn read_lock(&self) -> ReadWriteMutex<S> {
        ReadWriteMutex { both: self.both.clone(), side: Side::Read }
    }

    /// Returns the side of the writers.
    #[must_use]
    pub fn write_lock(&self) -> ReadWriteMutex<S> {
        ReadWriteMutex { both: self.both.clone(), side: Side::Write }
    }

    /// Makes a reading task a writer, too, with a new fencing token, if no other task reads. If another task reads or
    /// waits for an upgrade, the call is refused at once and the task remains a reader. Curator has no such call.
    pub async fn upgrade(&self, task: &Task) -> Result<FencingToken, CuratorError> {
        self.both.upgrade(task, None).await
    }

    /// Like [`upgrade`](Self::upgrade), but waits for at most this duration until the other readers have released. The
    /// task is ahead of the whole queue. When two readers upgrade at the same time, the second one is refused at once.
    pub async fn upgrade_within(&self, task: &Task, wait: Duration) -> Result<FencingToken, CuratorError> {
        self.both.upgrade(task, Some(wait)).await
    }
}

impl<S: LockService> ReadWriteMutex<S> {
    /// Waits for this side as long as the session lives.
    pub async fn acquire(&self, task: &Task) -> Result<(), CuratorError> {
        self.enter(task, |request| request).await
    }

    /// Waits for at most this duration. Returns false if the side was not free in time.
    pub async fn acquire_within(&self, task: &Task, wait: Duration) -> Result<bool, CuratorError> {
        let entered = self.enter(task, |request| request.wait(wait)).await;
        Ok(in_time(entered)?.is_some())
    }

    /// Undoes one acquire of the same task on this side.
    pub async fn release(&self, task: &Task) -> Result<(), CuratorError> {
        let (mut changing, reads_on) = {
            let Inside { entered, releases } = &mut *self.both.inside.lock();
            let entered = entered.get_mut(task).filter(|entered| 0 < entered.count(self.side));
            let Some(entered) = entered else {
                let refused = || CuratorError::IllegalMonitorState { path: self.both.path.clone() };
                let is_meant = |(of, side): &(Task, Side)| of == task && *side == self.side;
                return releases.is_unanswered(is_meant).then_some(()).ok_or_else(refused);
            };
            if entered.changing.is_some() {
                return Err(self.both.refused(BUSY));
            }
            *entered.count_mut(self.side) -= 1;
            let over = entered.reads == 0 && entered.writes == 0;
            let reads_on = self.side == Side::Write && entered.writes == 0 && 0 < entered.reads;
            if !over && !reads_on {
                return Ok(());
            }
            (Changing::begin(&self.both, task, self.side, entered, releases), reads_on)
        };
        if reads_on {
            return changing.hold()?.downgrade().await.map_err(CuratorError::from);
        }
        changing.take()?.release().await?;
        Ok(())
    }

    /// Whether any task of this process holds this side through this lock.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let Inside { entered, releases } = &*self.both.inside.lock();
        entered.values().any(|entered| self.is_held(entered)) || releases.is_pending(|(_, side)| *side == self.side)
    }

    /// Whether this task holds this side.
    #[must_use]
    pub fn is_owned_by(&self, task: &Task) -> bool {
        let Inside { entered, releases } = &*self.both.inside.lock();
        entered.get(task).is_some_and(|entered| self.is_held(entered))
            || releases.is_pending(|(of, side)| of == task && *side == self.side)
    }

    /// The fencing token of this task's hold, if the task holds this side.
    #[must_use]
    pub fn token(&self, task: &Task) -> Option<FencingToken> {
        self.of_hold(task, LockGuard::token)
    }

    /// A watch of this task's hold, for its loss and for requests to release it, if the task holds this side.
    #[must_use]
    pub fn watch(&self, task: &Task) -> Option<HoldWatch> {
        self.of_hold(task, LockGuard::watch)
    }

    /// Returns the holders and waiters of this side, in order.
    pub async fn participant_nodes(&self) -> Result<Vec<Participant>, CuratorError> {
        let all = participants(self.both.curator.client(), &self.both.path).await?;
        let mode = self.mode();
        Ok(all.into_iter().filter(|participant| participant.mode == mode).collect())
    }

    fn is_held(&self, entered: &Entered) -> bool {
        (0 < entered.count(self.side) || entered.changing == Some(self.side)) && entered.is_alive()
    }

    /// Reads a value from this task's hold, if the task holds this side.
    fn of_hold<T>(&self, task: &Task, read: impl FnOnce(&LockGuard) -> T) -> Option<T> {
        let inside = self.both.inside.lock();
        let entered = inside.entered.get(task).filter(|entered| self.is_held(entered))?;
        entered.hold.as_ref().map(read)
    }

    fn mode(&self) -> Mode {
        match self.side {
            Side::Read => Mode::Shared,
            Side::Write => Mode::Exclusive,
        }
    }

    async fn enter(
        &self,
        task: &Task,
        wait: impl FnOnce(LockRequest<S>) -> LockRequest<S>,
    ) -> Result<(), CuratorError> {
        if self.enter_again(task)? {
            return Ok(());
        }
        let session = self.both.curator.session().await?;
        let request = session.lock(&self.both.path).mode(self.mode()).owner(task.name());
        let hold = wait(request).acquire().await?;
        let mut inside = self.both.inside.lock();
        let entered = inside.entered.entry(task.clone()).or_default();
        entered.hold = Some(hold);
        *entered.count_mut(self.side) += 1;
        Ok(())
    }

    /// Counts one more acquisition if the task's hold allows it. Returns whether it did.
    fn enter_again(&self, task: &Task) -> Result<bool, CuratorError> {
        let mut inside = self.both.inside.lock();
        let Some(entered) = inside.entered.get_mut(task) else { return Ok(false) };
        if entered.changing.is_some() {
            return Err(self.both.refused(BUSY));
        }
        if entered.hold.is_none() {
            return Ok(false);
        }
        if let Some(hold) = entered.hold.as_ref().filter(|hold| hold.state() == HoldState::Lost) {
            return Err(ClientError::SessionLost { session: hold.session(), reason: None, why: None }.into());
        }
        if self.side == Side::Write && entered.writes == 0 {
            return Err(self
                .both
                .refused("a reader cannot acquire the write lock: upgrade it, or release the read lock"));
        }
        *entered.count_mut(self.side) += 1;
        Ok(true)
    }
}

impl<S: LockService> Both<S> {
    async fn upgrade(&self, task: &Task, wait: Option<Duration>) -> Result<FencingToken, CuratorError> {
        let mut changing = {
            let Inside { entered, releases } = &mut *self.inside.lock();
            let reader = entered.get_mut(task).filter(|entered| entered.hold.is_some() && entered.writes == 0);
            let Some(entered) = reader else { return Err(self.refused("only a reader is upgraded")) };
            Changing::begin(self, task, Side::Read, entered, releases)
        };
        let hold = changing.hold()?;
        let token = match wait {
            Some(wait) => hold.upgrade_within(wait).await?,
            None => hold.upgrade().await?,
        };
        changing.writes = 1;
        Ok(token)
    }

    fn refused(&self, why: &'static str) -> CuratorError {
        CuratorError::IllegalState { path: self.path.clone(), why }
    }
}

/// A hold that is being changed. When this is dropped, the hold is stored again, even if the change did not complete.
struct Changing<'a, S: LockService> {
    both: &'a Both<S>,
    task: &'a Task,
    hold: Option<LockGuard>,
    /// Write acquisitions that the change adds.
    writes: u32,
    call: ReleaseCall,
}

impl<'a, S: LockService> Changing<'a, S> {
    fn begin(
        both: &'a Both<S>,
        task: &'a Task,
        side: Side,
        entered: &mut Entered,
        releases: &mut Releases<(Task, Side)>,
    ) -> Self {
        entered.changing = Some(side);
        let hold = entered.hold.take();
        let call = releases.begin(&(task.clone(), side), hold.as_ref().map(LockGuard::changes));
        Self { both, task, hold, writes: 0, call }
    }

    fn hold(&mut self) -> Result<&mut LockGuard, CuratorError> {
        self.hold.as_mut().ok_or_else(|| self.both.refused(BUSY))
    }

    fn take(&mut self) -> Result<LockGuard, CuratorError> {
        self.hold.take().ok_or_else(|| self.both.refused(BUSY))
    }
}

impl<S: LockService> Drop for Changing<'_, S> {
    fn drop(&mut self) {
        let mut inside = self.both.inside.lock();
        inside.releases.end(std::mem::take(&mut self.call));
        let Some(entered) = inside.entered.get_mut(self.task) else { return };
        entered.changing = None;
        entered.writes += self.writes;
        // An acquire that began before the task had this hold may have been granted another one since.
        if entered.hold.is_none() {
            entered.hold = self.hold.take();
        }
        if entered.is_over() {
            inside.entered.remove(self.task);
        }
    }
}
