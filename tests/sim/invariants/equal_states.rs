//! Nodes that have applied the same entries have the same state, and no node stops without a command.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "equal states",
    sentence: "Nodes at the same index have the same state, and none stops without a command.",
    broken: |evidence| {
        let mut broken = evidence.notes.stopped.clone();
        let states: Vec<_> = evidence.states.iter().filter_map(|state| state.as_ref().ok()).collect();
        if states.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
            broken.push(format!("index and digest of each node: {states:x?}"));
        }
        broken
    },
};
