//! The log in memory, for simulation. It knows which of its data is durable; `crash` drops the rest.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use super::{Wal, WalState, check_append, hole, refused};
use crate::mutex::Mutex;
use crate::storage::Done;
use crate::storage::error::copy_error;
use crate::storage::ids::{LogId, Vote, next_index};

/// The log in memory. A sync completes at once on the caller's thread, unless syncs are held.
#[derive(Clone, Default)]
pub struct MemoryWal(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    now: Image,
    durable: Image,
    /// The last commit, if no append or sync has written it yet.
    committed: Option<LogId>,
    /// Changes in `now` and not yet in `durable`, in order.
    unsynced: VecDeque<Change>,
    /// Held syncs: the number of changes that each covers, and its callback.
    waiting: VecDeque<(usize, Done)>,
    held: bool,
    fail_next: bool,
    failure: Option<io::Error>,
}

#[derive(Clone, Default)]
struct Image {
    state: WalState,
    entries: BTreeMap<u64, (LogId, Bytes)>,
}

#[derive(Clone)]
enum Change {
    Vote(Vote),
    Append(Vec<(LogId, Bytes)>),
    Truncate(Option<LogId>),
    Purge(LogId),
    Commit(LogId),
}

impl Change {
    fn check(&self, state: &WalState) -> io::Result<()> {
        let allowed = match self {
            Change::Vote(vote) => Some(*vote) >= state.vote,
            Change::Append(records) => return check_append(state.last, records),
            Change::Truncate(last) => (*last).max(state.purged) >= state.committed,
            Change::Purge(_) => true,
            Change::Commit(id) => Some(*id) >= state.committed && Some(*id) <= state.last,
        };
        if allowed { Ok(()) } else { Err(refused(format!("contradicts {state:?}"))) }
    }
}

impl Image {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Vote(vote) => self.state.vote = Some(*vote),
            Change::Append(records) => {
                self.entries.extend(records.iter().map(|(id, bytes)| (id.index, (*id, bytes.clone()))));
                self.state.last = records.last().map(|(id, _)| *id).or(self.state.last);
            }
            Change::Truncate(last) => {
                self.entries.split_off(&next_index(*last));
                self.state.last = self.entries.last_key_value().map(|(_, (id, _))| *id).or(self.state.purged);
            }
            Change::Purge(upto) => {
                if next_index(self.state.purged) > upto.index {
                    return;
                }
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.state.purged = Some(*upto);
                self.state.last = self.state.last.max(Some(*upto));
            }
            Change::Commit(id) => self.state.committed = Some(*id),
        }
    }
}

impl Inner {
    fn state(&self) -> WalState {
        WalState { committed: self.committed.or(self.now.state.committed), ..self.now.state }
    }

    fn refuse_if_failed(&self) -> io::Result<()> {
        self.failure.as_ref().map_or(Ok(()), |error| Err(copy_error(error)))
    }

    /// Makes a change; `None` stands for a sync. An append or a sync writes the last commit before, as on disk.
    fn change(&mut self, change: Option<Change>) -> io::Result<()> {
        self.refuse_if_failed()?;
        if let Some(change) = &change {
            change.check(&self.state())?;
        }
        let commit = match change {
            None | Some(Change::Append(_)) => self.committed.take().map(Change::Commit),
            _ => None,
        };
        for change in commit.into_iter().chain(change) {
            self.now.apply(&change);
            self.unsynced.push_back(change);
        }
        Ok(())
    }

    /// Completes every sync that is due. Returns the callbacks, which the caller must call after it releases the lock.
    fn end_syncs(&mut self) -> Vec<(Done, io::Result<()>)> {
        let mut callbacks = Vec::new();
        while let Some((changes, done)) = if self.held { None } else { self.waiting.pop_front() } {
            if mem::take(&mut self.fail_next) {
                self.failure = Some(io::Error::other("injected: the sync failed"));
            }
            if let Some(error) = &self.failure {
                callbacks.push((done, Err(copy_error(error))));
                continue;
            }
            for change in self.unsynced.drain(..changes) {
                self.durable.apply(&change);
            }
            callbacks.push((done, Ok(())));
        }
        callbacks
    }
}

impl MemoryWal {
    /// Holds all syncs from now on: nothing becomes durable, and no `done` is called.
    pub fn hold_syncs(&self) {
        self.0.lock().held = true;
    }

    /// Completes the held syncs in order. Later syncs are not held.
    pub fn release_syncs(&self) {
        self.0.lock().held = false;
        self.end_syncs();
    }

    /// Completes the oldest held sync. The others stay held. Returns whether there was a held sync.
    pub fn release_one_sync(&self) -> bool {
        let mut inner = self.0.lock();
        let later: VecDeque<_> = if inner.waiting.is_empty() { return false } else { inner.waiting.split_off(1) };
        let held = mem::replace(&mut inner.held, false);
        let callbacks = inner.end_syncs();
        (inner.waiting, inner.held) = (later, held);
        drop(inner);
        callbacks.into_iter().for_each(|(done, result)| done(result));
        true
    }

    /// Makes the next sync and every later call fail, until `crash`.
    pub fn fail_next_sync(&self) {
        self.0.lock().fail_next = true;
    }

    /// Simulates a power failure: unsynced changes are lost, and callbacks of their syncs are never called.
    pub fn crash(&self) {
        let mut inner = self.0.lock();
        let durable = inner.durable.clone();
        *inner = Inner { now: durable.clone(), durable, ..Inner::default() };
    }

    pub(in crate::storage) fn copy(&self) -> Self {
        let durable = self.0.lock().durable.clone();
        Self(Arc::new(Mutex::new(Inner { now: durable.clone(), durable, ..Inner::default() })))
    }

    pub(in crate::storage) fn restore(&self, copy: &Self) {
        let durable = copy.0.lock().durable.clone();
        self.0.lock().durable = durable;
        self.crash();
    }

    fn end_syncs(&self) {
        let callbacks = self.0.lock().end_syncs();
        callbacks.into_iter().for_each(|(done, result)| done(result));
    }

    fn change_and_sync(&self, change: Option<Change>, done: Done) -> io::Result<()> {
        let mut inner = self.0.lock();
        if let Err(error) = inner.change(change) {
            drop(inner);
            done(Err(copy_error(&error)));
            return Err(error);
        }
        // A sync covers every earlier change that no earlier sync covers.
        let taken: usize = inner.waiting.iter().map(|(changes, _)| changes).sum();
        let changes = inner.unsynced.len() - taken;
        inner.waiting.push_back((changes, done));
        drop(inner);
        self.end_syncs();
        Ok(())
    }
}

impl Wal for MemoryWal {
    fn state(&self) -> WalState {
        self.0.lock().state()
    }

    fn save_vote(&self, vote: Vote, done: Done) -> io::Result<()> {
        self.change_and_sync(Some(Change::Vote(vote)), done)
    }

    fn append(&self, records: Vec<(LogId, Bytes)>, done: Done) -> io::Result<()> {
        self.change_and_sync(Some(Change::Append(records)), done)
    }

    fn truncate_after(&self, last: Option<LogId>) -> io::Result<()> {
        let state = self.state();
        if next_index(last).max(next_index(state.purged)) >= next_index(state.last) {
            return Ok(());
        }
        self.change_and_sync(Some(Change::Truncate(last)), Box::new(drop))
    }

    fn purge(&self, upto: LogId) -> io::Result<()> {
        self.change_and_sync(Some(Change::Purge(upto)), Box::new(drop))
    }

    fn commit(&self, id: LogId) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.refuse_if_failed()?;
        let state = inner.state();
        Change::Commit(id).check(&state)?;
        if state.committed != Some(id) {
            inner.committed = Some(id);
        }
        Ok(())
    }

    fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<(LogId, Bytes)>> {
        let inner = self.0.lock();
        inner.refuse_if_failed()?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        if from >= to {
            return Ok(records);
        }
        if !inner.now.entries.contains_key(&from) {
            return Err(hole(from));
        }
        for (id, payload) in inner.now.entries.range(from..to).map(|(_, record)| record) {
            bytes += payload.len();
            if bytes > max_bytes && !records.is_empty() {
                break;
            }
            records.push((*id, payload.clone()));
        }
        Ok(records)
    }

    fn sync(&self, done: Done) -> io::Result<()> {
        self.change_and_sync(None, done)
    }

    fn synced(&self) -> Option<LogId> {
        let inner = self.0.lock();
        let (now, durable) = (&inner.now, &inner.durable);
        // A truncation may have replaced synced entries with entries of lower ids, so only entries in both images
        // count.
        let kept = |id: &LogId| {
            next_index(now.state.purged) > id.index || now.entries.get(&id.index).is_some_and(|(held, _)| held == id)
        };
        durable.entries.values().rev().map(|(id, _)| *id).find(kept).or(durable.state.purged)
    }

    fn size_bytes(&self) -> u64 {
        self.0.lock().now.entries.values().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}
