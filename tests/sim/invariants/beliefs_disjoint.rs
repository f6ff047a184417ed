//! While the clocks are within the margin, no two clients are sure at the same time of holds that exclude each other.
//! (Promise 4.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "beliefs are disjoint",
    sentence: "While clocks are within the margin, no two clients believe at the same time in holds that exclude each other.",
    broken: |evidence| evidence.rules(&[Rule::BeliefsDisjoint]),
};
