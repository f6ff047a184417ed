//! The history of each namespace: a ring of segments, each a run of records in their bytes.
//!
//! - Records of a namespace stand in order, each chained to the one before by its hash; see [`audit`](crate::audit).
//! - A segment is one record of the state. Only those that were written to or dropped since are dirty.
//! - Segments have numbers that only grow, over all namespaces: the lowest is the oldest anywhere. The highest is never
//!   dropped, so that it need not be remembered elsewhere.
//!
//! What it costs: in a release build an acquire and its release take 1.4 times as long to apply as without history (5.8
//! against 4.1 microseconds on a loaded machine). About half of that is the hash.

mod note;
mod page;
mod ring;
mod segment;

use std::collections::BTreeMap;

use ring::Ring;
pub use segment::Segment;

use super::RecordKey;
use super::record::{CorruptRecords, DirtyKeys};
use crate::audit::Draft;
use crate::limits;
use crate::model::{Namespace, Position};

pub(super) use note::Entrance;

/// How much is kept; a test has much less, so that it sees rings go round.
struct Bounds {
    records: usize,
    bytes: usize,
    bytes_all: usize,
    segment_bytes: usize,
}

const BOUNDS: Bounds = if cfg!(test) {
    Bounds { records: 200, bytes: 24 << 10, bytes_all: 30 << 10, segment_bytes: 1 << 10 }
} else {
    Bounds {
        records: limits::HISTORY_RECORDS_MAX,
        bytes: limits::HISTORY_BYTES_MAX,
        bytes_all: limits::HISTORY_BYTES_ALL_MAX,
        segment_bytes: limits::HISTORY_SEGMENT_BYTES,
    }
};

/// All rings.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    rings: BTreeMap<Namespace, Ring>,
    /// Whose each segment is, oldest first.
    order: BTreeMap<u64, Namespace>,
    /// Sizes of all segments together.
    bytes: usize,
    /// Grows whenever the dirty keys are taken.
    round: u64,
    /// Keeps nothing, to weigh what keeping costs.
    #[cfg(test)]
    pub(super) off: bool,
}

impl History {
    /// The dirty keys were taken: what is written from now on is dirty again.
    pub(super) fn carried_over(&mut self) {
        self.round += 1;
    }

    /// Adds a record. `floor` is the newest position of a namespace whose whole history was forgotten.
    pub(super) fn append(
        &mut self,
        namespace: &Namespace,
        draft: Draft<'_>,
        floor: &mut Position,
        dirty: &mut DirtyKeys,
    ) {
        #[cfg(test)]
        if self.off {
            return;
        }
        let next = self.order.last_key_value().map_or(1, |(newest, _)| newest + 1);
        let ring = match self.rings.get_mut(namespace) {
            Some(ring) => ring,
            None => self.rings.entry(namespace.clone()).or_insert_with(|| Ring::new(*floor)),
        };
        let before = ring.bytes();
        let written = ring.append(namespace, draft, next);
        self.bytes += ring.bytes() - before;
        if written == next {
            self.order.insert(next, namespace.clone());
        }
        if ring.marked != (self.round, written) {
            ring.marked = (self.round, written);
            dirty.touched(RecordKey::History(namespace.clone(), written));
        }
        if ring.too_much().is_some() || BOUNDS.bytes_all < self.bytes {
            self.trim(namespace, written, floor, dirty);
        }
    }

    /// Forgets the oldest segments until the bounds are kept. The one just written stays.
    fn trim(&mut self, namespace: &Namespace, written: u64, floor: &mut Position, dirty: &mut DirtyKeys) {
        while let Some(number) = self.rings.get(namespace).and_then(Ring::too_much) {
            self.forget(namespace.clone(), number, floor, dirty);
        }
        while BOUNDS.bytes_all < self.bytes {
            let oldest = self.order.iter().find(|(number, _)| **number != written);
            let Some((number, namespace)) = oldest.map(|(number, of)| (*number, of.clone())) else { return };
            self.forget(namespace, number, floor, dirty);
        }
    }

    /// Drops a namespace's oldest segment, which has this number.
    fn forget(&mut self, namespace: Namespace, number: u64, floor: &mut Position, dirty: &mut DirtyKeys) {
        self.order.remove(&number);
        let Some(ring) = self.rings.get_mut(&namespace) else { return };
        self.bytes -= ring.forget_oldest();
        if ring.is_empty() {
            *floor = ring.last().max(*floor);
            self.rings.remove(&namespace);
        }
        dirty.gone(RecordKey::History(namespace, number));
    }

    /// One segment, by its number.
    pub(super) fn segment(&self, namespace: &Namespace, number: u64) -> Option<&Segment> {
        self.rings.get(namespace)?.segment(number)
    }

    /// The keys of all segments.
    pub(super) fn keys(&self) -> impl Iterator<Item = RecordKey> + '_ {
        self.rings
            .iter()
            .flat_map(|(namespace, ring)| ring.numbers().map(|number| RecordKey::History(namespace.clone(), number)))
    }

    /// The history that these segments hold, in whatever order they come; refuses a broken chain.
    pub(super) fn restored(segments: BTreeMap<(Namespace, u64), Segment>) -> Result<Self, CorruptRecords> {
        let mut history = Self::default();
        for ((namespace, number), segment) in segments {
            let ring = history.rings.entry(namespace.clone()).or_insert_with(|| Ring::new(segment.after));
            let before = ring.bytes();
            ring.restore(&namespace, number, segment)
                .map_err(|why| CorruptRecords(format!("history of {namespace}, segment {number}: {why}")))?;
            history.bytes += ring.bytes() - before;
            if history.order.insert(number, namespace).is_some() {
                return Err(CorruptRecords(format!("two segments of history have the number {number}")));
            }
        }
        Ok(history)
    }

    /// Says what of it contradicts itself, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let bytes: usize = self.rings.values().map(Ring::bytes).sum();
        if bytes != self.bytes || BOUNDS.bytes_all < bytes {
            return Err(format!("{bytes} bytes of history, {} counted", self.bytes));
        }
        let numbers =
            self.rings.iter().flat_map(|(namespace, ring)| ring.numbers().map(move |number| (number, namespace)));
        let numbers: BTreeMap<_, _> = numbers.collect();
        if !numbers.iter().map(|(number, namespace)| (number, *namespace)).eq(&self.order) {
            return Err("the order of the segments of history is wrong".into());
        }
        self.rings.values().try_for_each(Ring::check)
    }
}
