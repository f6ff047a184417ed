//! The Raft log and vote on top of the storage module's write-ahead log.
//!
//! - Entries are readable when `append` returns and durable when its callback is called; the core never waits for a
//!   sync.
//! - The log has one writer, so votes, entries, truncations and purges keep the order of the calls.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt, stream};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};

use super::blocking::{awaited, may_wait};
use super::entry_cache::EntryCache;
use super::payload;
use super::types::{RaftEntry, RaftLogId, RaftVote, Types, from_log_id, from_vote, to_log_id, to_vote};
use crate::faults::{self, Fault};
use crate::limits::{REPLICATION_BYTES_MAX, REPLICATION_ENTRIES_MAX};
use crate::mutex::Mutex;
use crate::storage::{Vote, Wal};

/// A handle to the log. All handles share one log.
#[derive(Clone)]
pub(super) struct LogStore {
    wal: Arc<dyn Wal>,
    cache: Arc<Mutex<EntryCache>>,
    /// The last vote that was not written, see `save_vote`.
    elected: Arc<Mutex<Option<Vote>>>,
}

impl LogStore {
    pub(super) fn new(wal: Arc<dyn Wal>) -> Self {
        Self { wal, cache: Arc::default(), elected: Arc::default() }
    }

    /// Reads entries from `from` up to but not including `to`: as many as fit into one message, and at least one if the
    /// range has any.
    async fn read_part(&self, from: u64, to: u64) -> io::Result<Vec<RaftEntry>> {
        let to = to.min(from.saturating_add(REPLICATION_ENTRIES_MAX));
        loop {
            let (from, to) = {
                // The state and the cache are read under one lock, so that no truncation happens in between.
                let cache = self.cache.lock();
                let state = self.wal.state();
                let from = from.max(state.purged.map_or(cache.begins, |id| id.index + 1));
                let to = to.min(state.last.map_or(0, |id| id.index + 1));
                if from >= to {
                    return Ok(Vec::new());
                }
                match cache.first() {
                    Some(first) if first <= from => return Ok(cache.range(from, to, REPLICATION_BYTES_MAX)),
                    Some(first) => (from, to.min(first)),
                    None => (from, to),
                }
            };
            // A single read, so that no truncation can happen between two of its entries.
            let wal = self.wal.clone();
            let read = may_wait(self.wal.may_block(), move || wal.read(from, to, REPLICATION_BYTES_MAX)).await?;
            let state = self.wal.state();
            let gone = state.purged.is_some_and(|id| from <= id.index) || state.last.is_none_or(|id| id.index < from);
            match read {
                // The entries were purged or truncated after the state was read, so read it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound && gone => {}
                read => return read?.into_iter().map(|(id, bytes)| payload::decode(id, bytes)).collect(),
            }
        }
    }

    /// All entries from `from` up to but not including `to` that the log has.
    async fn read(&self, from: u64, to: u64) -> io::Result<Vec<RaftEntry>> {
        let mut entries: Vec<RaftEntry> = Vec::new();
        loop {
            let next = entries.last().map_or(from, |last| last.log_id.index + 1);
            let part = self.read_part(next, to).await?;
            let Some(first) = part.first() else { return Ok(entries) };
            if !entries.is_empty() && first.log_id.index != next {
                return Err(hole(next, first.log_id.index));
            }
            entries.extend(part);
        }
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

fn hole(from: u64, to: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the log lacks the entries {from} to {}", to - 1))
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<RaftEntry>> {
        let (from, to) = bounds(&range);
        self.read(from, to).await
    }

    /// The entries to apply, read in parts: the next part is read when the previous one was applied.
    async fn entries_stream<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = io::Result<RaftEntry>> + OptionalSend {
        let (from, to) = bounds(&range);
        let parts = stream::try_unfold((self.clone(), from), move |(log, from)| async move {
            let part = log.read_part(from, to).await?;
            let next = part.last().map(|last| last.log_id.index + 1);
            io::Result::Ok(next.map(|next| (stream::iter(part.into_iter().map(Ok)), (log, next))))
        });
        parts.try_flatten()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<RaftEntry>> {
        self.read_part(start, end).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<RaftVote>> {
        Ok(self.wal.state().vote.max(*self.elected.lock()).map(from_vote))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.wal.state();
        Ok(LogState {
            last_purged_log_id: state.purged.map(from_log_id),
            last_log_id: state.last.or(state.purged).map(from_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    /// Makes the vote durable. That the candidate of the last vote was elected is not written: it allows nothing that
    /// the vote does not allow, and no node starts as the leader. Raft has awaited the save of the last vote, so it is
    /// durable. So an election waits for two syncs less.
    ///
    /// After a start the node knows its leader from that leader's next message.
    async fn save_vote(&mut self, vote: &RaftVote) -> io::Result<()> {
        let vote = to_vote(vote);
        if vote.committed && self.wal.state().vote == Some(Vote { committed: false, ..vote }) {
            *self.elected.lock() = Some(vote);
            return Ok(());
        }
        let (done, saved) = awaited();
        self.wal.save_vote(vote, done)?;
        if faults::on(Fault::VoteBeforeSync) {
            return Ok(());
        }
        saved.await
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> io::Result<()> {
        let Some(id) = committed.as_ref().map(to_log_id) else { return Ok(()) };
        let state = self.wal.state();
        // The committed id on disk is only a lower bound. So an id that is not larger, or that is after the end of the
        // log, need not be written.
        if state.committed.is_some_and(|known| known >= id) || state.last.is_none_or(|last| last < id) {
            return Ok(());
        }
        self.wal.commit(id)
    }

    async fn read_committed(&mut self) -> io::Result<Option<RaftLogId>> {
        Ok(self.wal.state().committed.map(from_log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        let records = entries.iter().map(|entry| (to_log_id(&entry.log_id), payload::encode(&entry.payload))).collect();
        // The cache is locked during the append: a reader must never find entries that neither the cache nor the disk
        // has.
        let mut cache = self.cache.lock();
        if self.wal.state().last.is_none() {
            cache.begins = entries.first().map_or(0, |entry| entry.log_id.index);
        }
        if faults::on(Fault::AcknowledgedBeforeSync) {
            self.wal.append(records, Box::new(drop))?;
            callback.io_completed(Ok(()));
        } else {
            self.wal.append(records, Box::new(move |result| callback.io_completed(result)))?;
        }
        if let Some(committed) = self.wal.state().committed.filter(|_| faults::on(Fault::PurgedTooEarly)) {
            self.wal.purge(committed)?;
        }
        for entry in entries {
            cache.push(entry);
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<RaftLogId>) -> io::Result<()> {
        let last = last.as_ref().map(to_log_id);
        let mut cache = self.cache.lock();
        self.wal.truncate_after(last)?;
        cache.truncate_from(last.map_or(0, |id| id.index + 1));
        Ok(())
    }

    async fn purge(&mut self, upto: RaftLogId) -> io::Result<()> {
        let upto = to_log_id(&upto);
        let mut cache = self.cache.lock();
        self.wal.purge(upto)?;
        cache.purge(upto.index);
        Ok(())
    }
}
