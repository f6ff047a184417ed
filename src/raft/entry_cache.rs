//! Keeps the newest log entries in memory, so that replication and apply need not read the disk.

use std::collections::VecDeque;

use super::payload;
use super::types::{RaftEntry, RaftPayload};
use crate::limits::{CACHED_ENTRIES_MAX, CACHED_ENTRY_BYTES_MAX, DECODED_ENTRIES_MAX};

/// A gapless sequence of entries that ends with the last one of the log.
#[derive(Default)]
pub(super) struct EntryCache {
    entries: VecDeque<RaftEntry>,
    bytes: usize,
    /// Index of the first entry that was ever appended to an empty log here. The log lacks no entry before it.
    pub(super) begins: u64,
}

/// The approximate size of an entry in a message, in bytes.
pub(super) fn size_bytes(entry: &RaftEntry) -> usize {
    match &entry.payload {
        RaftPayload::Normal(proposal) => proposal.bytes.len(),
        RaftPayload::Blank => 1,
        RaftPayload::Membership(_) => payload::encode(&entry.payload).len(),
    }
}

impl EntryCache {
    /// Index of the oldest entry in the cache.
    pub(super) fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.log_id.index)
    }

    /// Adds the new last entry of the log. An entry that does not follow the last one replaces all entries.
    pub(super) fn push(&mut self, entry: RaftEntry) {
        if self.entries.back().is_some_and(|last| last.log_id.index + 1 != entry.log_id.index) {
            *self = Self { begins: self.begins, ..Self::default() };
        }
        self.bytes += size_bytes(&entry);
        self.entries.push_back(entry);
        if let Some(old) = self.entries.len().checked_sub(DECODED_ENTRIES_MAX + 1)
            && let Some(RaftEntry { payload: RaftPayload::Normal(proposal), .. }) = self.entries.get_mut(old)
        {
            proposal.entry = None;
            proposal.listener = None;
        }
        while self.entries.len() > CACHED_ENTRIES_MAX || (self.bytes > CACHED_ENTRY_BYTES_MAX && self.entries.len() > 1)
        {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= size_bytes(&entry);
        }
    }

    /// Removes all entries from `index` on.
    pub(super) fn truncate_from(&mut self, index: u64) {
        while self.entries.back().is_some_and(|last| last.log_id.index >= index) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= size_bytes(&entry);
            }
        }
    }

    /// Removes all entries up to `index`.
    pub(super) fn purge(&mut self, index: u64) {
        while self.first().is_some_and(|first| first <= index) {
            self.pop_front();
        }
    }

    /// Entries from `from` up to but not including `to`, at most `max_bytes` unless the first one is larger. `from`
    /// must not be before [`first`](Self::first).
    pub(super) fn range(&self, from: u64, to: u64, max_bytes: usize) -> Vec<RaftEntry> {
        let Some(first) = self.first() else { return Vec::new() };
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut found: Vec<RaftEntry> = Vec::new();
        let mut bytes = 0_usize;
        for entry in self.entries.iter().skip(skip).take_while(|entry| entry.log_id.index < to) {
            bytes = bytes.saturating_add(size_bytes(entry));
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        found
    }
}
