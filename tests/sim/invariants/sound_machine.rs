//! The lock machine's own invariants hold on every node.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "sound machine",
    sentence: "The machine's counters, queues and derived tables are consistent on every node.",
    broken: |evidence| evidence.states.iter().filter_map(|state| state.as_ref().err().cloned()).collect(),
};
