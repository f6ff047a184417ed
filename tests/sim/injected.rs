//! Counts the faults that were injected, and those that took effect: a message was lost, an entry was not durable, a
//! clock was read. A fault without effect proves nothing.

use std::collections::{BTreeMap, BTreeSet};

/// A kind of fault.
pub(crate) type Kind = &'static str;

pub(crate) const POWER_CUT: Kind = "power-cut";
pub(crate) const NODES_APART: Kind = "nodes-apart";
pub(crate) const CLIENT_APART: Kind = "client-apart";
pub(crate) const ONE_WAY: Kind = "one-way";
pub(crate) const HELD: Kind = "held-messages";
pub(crate) const STALLED: Kind = "stalled-disk";
pub(crate) const HAND_OVER: Kind = "hand-over";
pub(crate) const SNAPSHOT: Kind = "snapshot-file";
pub(crate) const FAR_BEHIND: Kind = "far-behind";
pub(crate) const CLIENT_CLOCK: Kind = "client-clock-jumps";
pub(crate) const NODE_CLOCK: Kind = "node-clock-jumps";
pub(crate) const NODE_CLOCK_STANDS: Kind = "node-clock-stands";
pub(crate) const WALL_CLOCK: Kind = "wall-clock-set";

/// Every kind of fault in the mixed scenario.
pub(crate) const ALL: [Kind; 13] = [
    POWER_CUT,
    NODES_APART,
    CLIENT_APART,
    ONE_WAY,
    HELD,
    STALLED,
    HAND_OVER,
    SNAPSHOT,
    FAR_BEHIND,
    CLIENT_CLOCK,
    NODE_CLOCK,
    NODE_CLOCK_STANDS,
    WALL_CLOCK,
];

/// The number of an injected fault.
pub(crate) type Tried = usize;

/// The injected faults and their effects.
#[derive(Debug, Default)]
pub(crate) struct InjectedFaults {
    tried: Vec<Kind>,
    effective: BTreeSet<Tried>,
    /// Directions in which no message passes, and the fault that causes it.
    broken: BTreeMap<(&'static str, &'static str), Tried>,
    /// The last requested transfer of leadership that no new leader has completed yet.
    handing_over: Option<Tried>,
}

impl InjectedFaults {
    pub(crate) fn tried(&mut self, kind: Kind) -> Tried {
        self.tried.push(kind);
        self.tried.len() - 1
    }

    pub(crate) fn took_effect(&mut self, tried: Tried) {
        self.effective.insert(tried);
    }

    /// Records that the newest fault of this kind took effect.
    pub(crate) fn newest_took_effect(&mut self, kind: Kind) {
        self.effective.extend(self.tried.iter().rposition(|tried| *tried == kind));
    }

    pub(crate) fn breaks(&mut self, tried: Tried, from: &'static str, to: &'static str) {
        self.broken.insert((from, to), tried);
    }

    pub(crate) fn joins(&mut self, one: &'static str, other: &'static str) {
        self.broken.remove(&(one, other));
        self.broken.remove(&(other, one));
    }

    /// Records that a message is sent in this direction.
    pub(crate) fn sent(&mut self, from: &'static str, to: &'static str) {
        self.effective.extend(self.broken.get(&(from, to)));
    }

    pub(crate) fn hands_over(&mut self) {
        self.handing_over = Some(self.tried(HAND_OVER));
    }

    /// Records that a node leads.
    pub(crate) fn led(&mut self) {
        self.effective.extend(self.handing_over.take());
    }

    /// How often each kind was injected, and how often it took effect.
    pub(crate) fn counts(&self) -> BTreeMap<Kind, (usize, usize)> {
        let mut counts: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
        for (tried, kind) in self.tried.iter().enumerate() {
            let count = counts.entry(kind).or_default();
            count.0 += 1;
            count.1 += usize::from(self.effective.contains(&tried));
        }
        counts
    }
}
