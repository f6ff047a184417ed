//! The lock machine's own invariants hold on every node.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "sound machine",
    sentence: "What the machine says of itself is so on every node: counters, queues, derived tables.",
    broken: |evidence| evidence.states.iter().filter_map(|state| state.as_ref().err().cloned()).collect(),
};
