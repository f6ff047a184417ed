//! The log on disk, on top of `raft-log`.
//!
//! This module relies on the following behaviour of `raft-log` 0.4.6 and `chunked-wal` 0.2.3, read in their source. One
//! thread writes and syncs requests in the order in which they were sent. A failed write or sync is reported to every
//! waiting callback and ends that thread, so nothing is retried. A new file begins only after the previous one was
//! synced. Files are removed only after the sync of the purge that frees them, and then the directory is synced. Later
//! callers do not receive the cause of a failure, so this module keeps the first error.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::codeq::OffsetSize;
use raft_log::{Config, RaftLog, Segment, chunked_wal};

use super::codec::{FlushCallback, Payload, WalTypes, flush_thread_stopped};
use super::{Wal, WalState, check_append, hole, refused};
use crate::limits;
use crate::mutex::Mutex;
use crate::storage::Done;
use crate::storage::error::{copy_error, explained};
use crate::storage::ids::{LogId, Vote, next_index, shown};

/// Measures how long each request takes from the call until it is durable. The implementation has its own clock.
pub trait SyncObserver: Send + Sync {
    /// A request was handed to the flush thread. The returned value is passed to `finished`.
    fn started(&self) -> u64;
    /// The request that began at `started` is durable, or failed.
    fn finished(&self, started: u64, durable: bool);
}

/// The log on disk. The drop of the last handle writes what is pending and ends the flush thread. It loses the last
/// commit if no append or sync came after it.
#[derive(Clone)]
pub struct DiskWal(Arc<Shared>);

struct Shared {
    log: RwLock<Log>,
    progress: Arc<Mutex<Progress>>,
    failure: Arc<OnceLock<io::Error>>,
    dir: PathBuf,
    observer: OnceLock<Arc<dyn SyncObserver>>,
    purge_limit: PurgeLimit,
}

/// The log id of the newest snapshot file, shared with the writer of those files. The log is purged up to it at most.
pub(in crate::storage) type PurgeLimit = Arc<Mutex<Option<LogId>>>;

struct Log {
    raft: RaftLog<WalTypes>,
    /// The end of the last request that was, or will be, synced, as an offset of the whole log.
    window_start: u64,
    /// The last commit, if no request has written it yet. Only an append or a sync writes it, as its first record. So a
    /// commit, a vote, a truncation or a purge is always the first record of its request: it reaches the disk only
    /// after the sync of everything before it. `torn_tail` relies on this.
    committed: Option<LogId>,
}

impl Log {
    fn state(&self) -> WalState {
        let state = self.raft.log_state();
        WalState {
            purged: state.purged().copied(),
            last: state.last().copied(),
            vote: state.vote().copied(),
            committed: self.committed.or(state.committed().copied()),
        }
    }
}

#[derive(Default)]
struct Progress {
    synced: Option<LogId>,
    /// Increased by each truncation: an earlier sync proves nothing about the removed entries.
    epoch: u64,
    #[cfg(test)]
    fail_next: bool,
}

impl DiskWal {
    /// Makes the log behave as if a snapshot of everything existed, because openraft's test suite purges without one.
    #[cfg(test)]
    pub(crate) fn assume_snapshot_of_everything(&self) {
        *self.0.purge_limit.lock() = Some(LogId { term: u64::MAX, node: u64::MAX, index: u64::MAX });
    }

    /// Opens the log in `dir`, on which `cut_torn_tail` must have run before: it made durable what the files contain.
    /// Syncs what this adds.
    pub(in crate::storage) fn open(dir: &Path, purge_limit: PurgeLimit) -> io::Result<Self> {
        Self::open_with(config(dir)?, dir, purge_limit)
    }

    pub(super) fn open_with(config: Config, dir: &Path, purge_limit: PurgeLimit) -> io::Result<Self> {
        let raft = RaftLog::<WalTypes>::open(Arc::new(config))?;
        let end = raft.stat().open_chunk.global_end;
        let wal = Self(Arc::new(Shared {
            log: RwLock::new(Log { raft, window_start: end, committed: None }),
            progress: Arc::default(),
            failure: Arc::default(),
            dir: dir.to_path_buf(),
            observer: OnceLock::new(),
            purge_limit,
        }));
        wal.sync_and_wait()?;
        Ok(wal)
    }

    /// Reports syncs to `observer` from now on. Only the first observer is kept.
    pub fn on_sync(&self, observer: Arc<dyn SyncObserver>) {
        // A second observer is dropped, which loses only figures.
        let _ = self.0.observer.set(observer);
    }

    pub(in crate::storage) fn sync_and_wait(&self) -> io::Result<()> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.sync(Box::new(move |result| {
            // The receiver is dropped only if the call itself failed.
            let _ = sender.send(result);
        }))?;
        receiver.recv().map_err(|_| flush_thread_stopped())?
    }

    #[cfg(test)]
    pub(super) fn fail_next_sync(&self) {
        self.0.progress.lock().fail_next = true;
    }

    /// Number of requests of the flush thread that ended with a sync. A sync is counted before its callback is called.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.read_lock().raft.stat().flush_metrics.sync_batch_count
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Log> {
        self.0.log.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lock(&self) -> RwLockWriteGuard<'_, Log> {
        self.0.log.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` and queues a sync under one lock, so that the file has the records in the order of the calls.
    /// `change` gets the start of its request, and the commit that no request has written yet.
    fn write_and_sync(
        &self,
        done: Done,
        change: impl FnOnce(&mut RaftLog<WalTypes>, u64, &mut Option<LogId>) -> io::Result<Option<Segment>>,
    ) -> io::Result<()> {
        let mut log = self.write_lock();
        if let Err(error) = self.refuse_if_failed() {
            drop(log);
            done(Err(copy_error(&error)));
            return Err(error);
        }
        let Log { raft, window_start, committed } = &mut *log;
        let changed = change(raft, *window_start, committed);
        if let Err(error) = &changed {
            let error = self.not_written(error);
            drop(log);
            done(Err(copy_error(&error)));
            return Err(error);
        }
        let last = raft.log_state().last().copied();
        let flushed = raft.flush(true, Some(self.callback(last, done)));
        // After the request is handed over, nothing is written after it before its sync has completed.
        *window_start = changed.ok().flatten().map_or(*window_start, |written| written.end().0);
        drop(log);
        flushed.map_err(|error| self.0.failure.get().map_or(error, copy_error))
    }

    /// Returns the error of a change that `raft-log` did not make. It refuses a change that contradicts its state as
    /// invalid input, before it writes anything. Every other error is kept, because a part of the change may already be
    /// on its way to the disk.
    fn not_written(&self, error: &io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::InvalidInput || error.raw_os_error().is_some() {
            drop(self.0.failure.set(explained("write the log in", &self.0.dir, error)));
        }
        copy_error(self.0.failure.get().unwrap_or(error))
    }

    /// Returns the callback of one request. The callback keeps the first error, updates `synced`, and then calls
    /// `done`.
    fn callback(&self, last: Option<LogId>, done: Done) -> FlushCallback {
        let (progress, failure, dir) = (self.0.progress.clone(), self.0.failure.clone(), self.0.dir.clone());
        let observed = self.0.observer.get().map(|observer| (observer.clone(), observer.started()));
        let epoch = progress.lock().epoch;
        FlushCallback::new(Box::new(move |mut result| {
            {
                let mut progress = progress.lock();
                #[cfg(test)]
                if std::mem::take(&mut progress.fail_next) {
                    result = Err(io::Error::other("injected: the sync failed"));
                }
                if let Err(error) = &result {
                    drop(failure.set(explained("sync the log in", &dir, error)));
                }
                if let Some(first) = failure.get() {
                    // A sync after a failed one proves nothing, because the kernel reports a lost page only once.
                    result = Err(copy_error(first));
                }
                if result.is_ok() && progress.epoch == epoch {
                    progress.synced = last;
                }
            }
            if let Some((observer, started)) = observed {
                observer.finished(started, result.is_ok());
            }
            done(result);
        }))
    }

    fn refuse_if_failed(&self) -> io::Result<()> {
        self.0.failure.get().map_or(Ok(()), |error| Err(copy_error(error)))
    }
}

impl Wal for DiskWal {
    fn state(&self) -> WalState {
        self.read_lock().state()
    }

    fn save_vote(&self, vote: Vote, done: Done) -> io::Result<()> {
        self.write_and_sync(done, |raft, _, _| raft.save_vote(vote).map(Some))
    }

    fn append(&self, records: Vec<(LogId, Bytes)>, done: Done) -> io::Result<()> {
        self.write_and_sync(done, |raft, window_start, committed| {
            check_append(raft.log_state().last().copied(), &records)?;
            if let Some(id) = committed.take() {
                raft.commit(id)?;
            }
            let records = records.into_iter().map(|(id, bytes)| (id, Payload { window_start, bytes }));
            raft.append(records).map(Some)
        })
    }

    fn truncate_after(&self, last: Option<LogId>) -> io::Result<()> {
        let progress = self.0.progress.clone();
        self.write_and_sync(Box::new(drop), move |raft, _, committed| {
            let state = raft.log_state();
            let (end, front) = (next_index(state.last().copied()), next_index(state.purged().copied()));
            let keep = next_index(last).max(front);
            if keep >= end {
                return Ok(None);
            }
            // `raft-log` refuses this for a commit that was written.
            if last.max(state.purged().copied()) < *committed {
                return Err(refused(format!("truncate after {}, but {} is committed", shown(last), shown(*committed))));
            }
            let written = raft.truncate(keep)?;
            let left = raft.log_state().last().copied();
            let mut progress = progress.lock();
            progress.epoch += 1;
            progress.synced = progress.synced.min(left);
            Ok(Some(written))
        })
    }

    fn purge(&self, upto: LogId) -> io::Result<()> {
        let newest = *self.0.purge_limit.lock();
        if newest.is_none_or(|newest| newest.index < upto.index) {
            let newest = shown(newest);
            return Err(refused(format!("purge to {upto}, but the newest snapshot file is at {newest}")));
        }
        self.write_and_sync(Box::new(drop), |raft, _, _| raft.purge(upto).map(Some))
    }

    fn commit(&self, id: LogId) -> io::Result<()> {
        let mut log = self.write_lock();
        self.refuse_if_failed()?;
        let state = log.state();
        if Some(id) < state.committed || state.last < Some(id) {
            return Err(refused(format!("commit {id} contradicts {state:?}")));
        }
        // The next append or sync writes it. It is a lower bound, so it needs no separate sync.
        if state.committed != Some(id) {
            log.committed = Some(id);
        }
        Ok(())
    }

    fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<(LogId, Bytes)>> {
        let log = self.read_lock();
        self.refuse_if_failed()?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        if from >= to {
            return Ok(records);
        }
        for record in log.raft.read(from, to) {
            let (id, payload) = record?;
            if id.index != from + records.len() as u64 {
                break;
            }
            bytes += payload.bytes.len();
            if bytes > max_bytes && !records.is_empty() {
                break;
            }
            records.push((id, payload.bytes));
        }
        if records.is_empty() { Err(hole(from)) } else { Ok(records) }
    }

    fn may_block(&self) -> bool {
        true
    }

    fn sync(&self, done: Done) -> io::Result<()> {
        self.write_and_sync(done, |raft, _, committed| committed.take().map(|id| raft.commit(id)).transpose())
    }

    fn synced(&self) -> Option<LogId> {
        self.0.progress.lock().synced
    }

    fn failure(&self) -> Option<String> {
        let failure = self.0.failure.get()?;
        if failure.kind() == flush_thread_stopped().kind()
            // The thread has kept the cause, which none of its requests could receive.
            && let Err(cause) = self.read_lock().raft.wait_worker_idle()
        {
            return Some(explained("write the log in", &self.0.dir, &cause).to_string());
        }
        Some(failure.to_string())
    }

    fn size_bytes(&self) -> u64 {
        self.read_lock().raft.on_disk_size()
    }
}

pub(super) fn config(dir: &Path) -> io::Result<Config> {
    let dir = dir.to_str().ok_or_else(|| refused(format!("{} is not UTF-8", dir.display())))?;
    let mut wal = chunked_wal::Config::new(dir);
    wal.read_buffer_size = Some(limits::WAL_READ_BUFFER_BYTES);
    wal.chunk_max_records = Some(limits::WAL_CHUNK_RECORDS);
    wal.chunk_max_size = Some(limits::WAL_CHUNK_BYTES);
    // `torn_tail` has already cut a torn tail, so a record that is incomplete now is damage.
    wal.truncate_incomplete_record = Some(false);
    // Each request has its own sync, which `torn_tail` relies on.
    wal.flush_batch_wait = Some(Duration::ZERO);
    wal.flush_queue_max_bytes = Some(limits::WAL_QUEUE_BYTES);
    Ok(Config {
        wal,
        log_cache_max_items: Some(limits::WAL_CACHE_ENTRIES),
        log_cache_capacity: Some(limits::WAL_CACHE_BYTES),
    })
}
