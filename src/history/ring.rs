//! The segments of one namespace. Records are appended to the newest segment, and the oldest segments are dropped.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::bytes;
use super::bytes::{beginning, link};
use super::draft::Draft;
use super::read::{Records, read};
use super::segment::{Packed, Segment};
use crate::limits::{self, HISTORY_SEGMENT_COST_BYTES};
use crate::model::{ChainHash, LockName, Namespace, Position};

/// How much history is kept. Tests keep much less, so that segments are dropped during a test.
pub(super) struct Bounds {
    records: usize,
    bytes: usize,
    pub(super) bytes_all: usize,
    segment_bytes: usize,
}

pub(super) const BOUNDS: Bounds = if cfg!(test) {
    Bounds { records: 200, bytes: 24 << 10, bytes_all: 30 << 10, segment_bytes: 1 << 10 }
} else {
    Bounds {
        records: limits::HISTORY_RECORDS_MAX,
        bytes: limits::HISTORY_BYTES_MAX,
        bytes_all: limits::HISTORY_BYTES_ALL_MAX,
        segment_bytes: limits::HISTORY_SEGMENT_BYTES,
    }
};

/// The newest record of each lock: the number of its segment, and its hash. A hash map for look-ups only.
type Latest = HashMap<LockName, (u64, ChainHash), foldhash::fast::FixedState>;

/// The segments of one namespace. See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring {
    /// Oldest first, with their numbers.
    segments: VecDeque<(u64, Segment)>,
    records: usize,
    bytes: usize,
    /// The position of the newest record.
    last: Position,
    /// The hash of the newest record.
    head: ChainHash,
    latest: Latest,
    /// The round and segment that were last marked as dirty.
    pub(super) marked: (u64, u64),
    /// A buffer for the record that is being appended, kept to reuse its memory.
    draft: Vec<u8>,
}

impl Ring {
    /// An empty ring. Records at or below `floor` were dropped before.
    pub(super) fn new(namespace: &Namespace, floor: Position) -> Self {
        Self { last: floor, head: beginning(namespace, floor), ..Self::default() }
    }

    /// An empty ring to which this stored segment is appended first.
    pub(super) fn before(oldest: &Segment) -> Self {
        Self { last: oldest.after, head: oldest.begins, ..Self::default() }
    }

    /// Adds a record. Returns the number of its segment, which is `next` if the record began a new segment.
    pub(super) fn append(&mut self, namespace: &Namespace, draft: Draft<'_>, next: u64) -> u64 {
        if self.segments.back().is_none_or(|(_, tail)| BOUNDS.segment_bytes <= tail.bytes.0.len()) {
            self.begin(next);
        }
        let Some((number, tail)) = self.segments.back_mut() else { return next };
        let mut draft = draft;
        let latest = self.latest.entry(draft.lock.clone());
        if let Entry::Occupied(latest) = &latest {
            draft.previous = latest.get().1;
        }
        self.draft.clear();
        bytes::write(&mut self.draft, &draft);
        self.head = link(namespace, self.head, &self.draft);
        latest.insert_entry((*number, self.head));
        let before = tail.bytes.0.len();
        bytes::number(&mut tail.bytes.0, self.draft.len() as u64);
        tail.bytes.0.extend_from_slice(&self.draft);
        tail.records += 1;
        self.records += 1;
        self.bytes += tail.bytes.0.len() - before;
        self.last = draft.event.position;
        *number
    }

    fn begin(&mut self, number: u64) {
        if let Some((_, full)) = self.segments.back_mut() {
            full.bytes.0.shrink_to_fit();
        }
        let segment = Segment { begins: self.head, after: self.last, records: 0, bytes: Packed::default() };
        self.segments.push_back((number, segment));
        self.bytes += HISTORY_SEGMENT_COST_BYTES;
    }

    /// The number of the oldest segment, if the ring exceeds its bounds and has a newer segment.
    pub(super) fn too_much(&self) -> Option<u64> {
        let Bounds { records, bytes, .. } = BOUNDS;
        let beyond = 1 < self.segments.len() && (records < self.records || bytes < self.bytes);
        self.segments.front().filter(|_| beyond).map(|(number, _)| *number)
    }

    /// Drops the oldest segment and returns its size in bytes.
    pub(super) fn forget_oldest(&mut self) -> usize {
        let Some((number, segment)) = self.segments.pop_front() else { return 0 };
        for record in Records::of(&segment) {
            let Ok(record) = record.and_then(read) else { break };
            if self.latest.get(record.lock).is_some_and(|(of, _)| *of == number) {
                self.latest.remove(record.lock);
            }
        }
        let size = size(&segment);
        self.records -= segment.records as usize;
        self.bytes -= size;
        size
    }

    /// Appends a stored segment. Returns an error if it does not follow the segments in the ring.
    pub(super) fn restore(&mut self, namespace: &Namespace, number: u64, segment: Segment) -> Result<(), String> {
        if segment.begins != self.head || segment.after != self.last {
            return Err("it does not follow the one before".into());
        }
        let (mut records, mut last) = (0, self.last);
        for record in Records::of(&segment) {
            let bytes = record.map_err(|damaged| damaged.to_string())?;
            let record = read(bytes).map_err(|damaged| damaged.to_string())?;
            let lock = LockName::parse(record.lock).map_err(|invalid| invalid.to_string())?;
            if record.position <= last {
                return Err(format!("{} stands after {last}", record.position));
            }
            self.head = link(namespace, self.head, bytes);
            self.latest.insert(lock, (number, self.head));
            (records, last) = (records + 1, record.position);
        }
        if records != segment.records {
            return Err(format!("{records} records instead of {}", segment.records));
        }
        self.records += records as usize;
        self.bytes += size(&segment);
        self.last = last;
        self.segments.push_back((number, segment));
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The position of the newest record.
    pub(super) fn last(&self) -> Position {
        self.last
    }

    /// The position up to which records were dropped.
    pub(super) fn floor(&self) -> Position {
        self.segments.front().map_or(self.last, |(_, oldest)| oldest.after)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().map(|(number, _)| *number)
    }

    pub(super) fn segment(&self, number: u64) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.segments.get(at).map(|(_, segment)| segment)
    }

    /// The segments that may have records after this position.
    pub(super) fn segments_after(&self, after: Position) -> impl Iterator<Item = &Segment> {
        let begun = self.segments.partition_point(|(_, segment)| segment.after <= after);
        self.segments.range(begun.saturating_sub(1)..).map(|(_, segment)| segment)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let records: usize = self.segments.iter().map(|(_, segment)| segment.records as usize).sum();
        let bytes: usize = self.segments.iter().map(|(_, segment)| size(segment)).sum();
        if (records, bytes) != (self.records, self.bytes) || self.too_much().is_some() {
            let counted = (self.records, self.bytes);
            return Err(format!("{records} records of history in {bytes} bytes, counted as {counted:?}"));
        }
        Ok(())
    }
}

fn size(segment: &Segment) -> usize {
    segment.bytes.0.len() + HISTORY_SEGMENT_COST_BYTES
}
