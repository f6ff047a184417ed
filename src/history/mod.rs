//! The history of each namespace: records as bytes, chained by hashes, in rings of segments, and the verification that
//! a history follows the rules.
//!
//! Knows: limits, model. Never: the machine, a clock, disks, JSON.
//!
//! - The machine appends each record in the encoding of [`bytes`]. Its hash covers those bytes, the namespace and the
//!   hash of the previous record.
//! - A ring is a sequence of segments. Each segment has many records of the history, and is stored as one record of
//!   the state. An append reports which segments it changed or dropped.
//! - All namespaces share one sequence of segment numbers, so the lowest number is the oldest segment of all. The
//!   segment with the highest number is never dropped, so the next number is always known.
//! - If all records of a namespace were dropped, its ring is removed. Its next ring begins with a hash of the position
//!   up to which records may have been dropped, the floor. So the first record of that ring is not confused with the
//!   first record of the namespace.
//! - [`verify`](fn@verify) accepts records from any source, usually a file, and trusts none of them.
//!
//! A chain does not show whether records at its beginning or end are missing, or whether all of it was written again. A
//! reader that must exclude this compares the last hash with the cluster's, or stores the hash elsewhere.
//!
//! Cost: in a release build an acquire and its release take 1.4 times as long to apply as without history (5.8 instead
//! of 4.1 microseconds on a loaded machine). About half of that is the hash.

pub mod bytes;
mod draft;
mod page;
mod read;
mod ring;
mod segment;
mod verify;

use std::collections::BTreeMap;

pub use bytes::link;
pub use draft::{Draft, Facts};
use ring::{BOUNDS, Ring};
pub use segment::Segment;
pub use verify::{Flaw, Proof, verify};

use crate::model::{Namespace, Position};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentChange {
    Written,
    Dropped,
}

/// The rings of all namespaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    rings: BTreeMap<Namespace, Ring>,
    /// The namespace of each segment, oldest first.
    order: BTreeMap<u64, Namespace>,
    /// The size of all segments together, in bytes.
    bytes: usize,
    /// The number of times that the state gave away its dirty keys: the keys of the records that changed.
    round: u64,
    /// Whether history is off, so that a benchmark can measure its cost.
    #[cfg(test)]
    pub(crate) off: bool,
}

impl History {
    /// The size of the history of all namespaces, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that the state gave away its dirty keys, so that [`append`](Self::append) reports a segment again when it
    /// writes to the segment the next time.
    pub(crate) fn carried_over(&mut self) {
        self.round += 1;
    }

    /// Adds a record. `floor` is the newest position of the namespaces whose whole history was dropped; the append
    /// raises it if it drops the whole history of another one.
    ///
    /// Reports each changed segment, by its namespace and number: once between two calls of
    /// [`carried_over`](Self::carried_over) if it was written, and once if it was dropped.
    pub(crate) fn append(
        &mut self,
        namespace: &Namespace,
        draft: Draft<'_>,
        floor: &mut Position,
        mut changed: impl FnMut(Namespace, u64, SegmentChange),
    ) {
        #[cfg(test)]
        if self.off {
            return;
        }
        let next = self.order.last_key_value().map_or(1, |(newest, _)| newest + 1);
        let ring = match self.rings.get_mut(namespace) {
            Some(ring) => ring,
            None => self.rings.entry(namespace.clone()).or_insert_with(|| Ring::new(namespace, *floor)),
        };
        let before = ring.bytes();
        let written = ring.append(namespace, draft, next);
        self.bytes += ring.bytes() - before;
        if written == next {
            self.order.insert(next, namespace.clone());
        }
        if ring.marked != (self.round, written) {
            ring.marked = (self.round, written);
            changed(namespace.clone(), written, SegmentChange::Written);
        }
        if ring.too_much().is_some() || BOUNDS.bytes_all < self.bytes {
            self.trim(namespace, written, floor, &mut changed);
        }
    }

    /// Drops the oldest segments until the bounds are met. Keeps the segment that was just written.
    fn trim(
        &mut self,
        namespace: &Namespace,
        written: u64,
        floor: &mut Position,
        changed: &mut impl FnMut(Namespace, u64, SegmentChange),
    ) {
        while let Some(number) = self.rings.get(namespace).and_then(Ring::too_much) {
            self.forget(namespace, number, floor);
            changed(namespace.clone(), number, SegmentChange::Dropped);
        }
        while BOUNDS.bytes_all < self.bytes {
            let oldest = self.order.iter().find(|(number, _)| **number != written);
            let Some((number, namespace)) = oldest.map(|(number, of)| (*number, of.clone())) else { return };
            self.forget(&namespace, number, floor);
            changed(namespace, number, SegmentChange::Dropped);
        }
    }

    /// Drops the oldest segment of a namespace. `number` is the number of that segment.
    fn forget(&mut self, namespace: &Namespace, number: u64, floor: &mut Position) {
        self.order.remove(&number);
        let Some(ring) = self.rings.get_mut(namespace) else { return };
        self.bytes -= ring.forget_oldest();
        if ring.is_empty() {
            *floor = ring.last().max(*floor);
            self.rings.remove(namespace);
        }
    }

    pub(crate) fn segment(&self, namespace: &Namespace, number: u64) -> Option<&Segment> {
        self.rings.get(namespace)?.segment(number)
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Namespace, u64)> {
        self.rings.iter().flat_map(|(namespace, ring)| ring.numbers().map(move |number| (namespace, number)))
    }

    /// Builds the history from these segments. Returns an error for a broken chain.
    pub(crate) fn restored(segments: BTreeMap<(Namespace, u64), Segment>) -> Result<Self, String> {
        let mut history = Self::default();
        for ((namespace, number), segment) in segments {
            let ring = history.rings.entry(namespace.clone()).or_insert_with(|| Ring::before(&segment));
            let before = ring.bytes();
            ring.restore(&namespace, number, segment)
                .map_err(|why| format!("history of {namespace}, segment {number}: {why}"))?;
            history.bytes += ring.bytes() - before;
            if history.order.insert(number, namespace).is_some() {
                return Err(format!("two segments of history have the number {number}"));
            }
        }
        Ok(history)
    }

    /// Describes the first contradiction in the history, if any.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bytes: usize = self.rings.values().map(Ring::bytes).sum();
        if bytes != self.bytes || BOUNDS.bytes_all < bytes {
            return Err(format!("{bytes} bytes of history, {} counted", self.bytes));
        }
        let numbers: BTreeMap<_, _> = self.segments().map(|(namespace, number)| (number, namespace)).collect();
        if !numbers.iter().map(|(number, namespace)| (number, *namespace)).eq(&self.order) {
            return Err("the order of the segments of history is wrong".into());
        }
        self.rings.values().try_for_each(Ring::check)
    }
}
