//! Events are reported in order, once and completely, the same on every node.

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "events are complete",
    sentence: "Events are reported in order, once and completely, the same on every node.",
    broken: |evidence| evidence.rules(&[Rule::PositionsGrow, Rule::NodesAgree, Rule::NothingMissing]),
};
