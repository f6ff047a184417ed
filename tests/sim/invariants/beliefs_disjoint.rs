//! While clocks are within the margin, no two clients believe at one moment that they hold what excludes each other. (Promise 4.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "beliefs are disjoint",
    sentence: "While clocks are within the margin, no two clients believe at one moment that they hold what excludes each other.",
    broken: |evidence| evidence.rules(&[Rule::BeliefsDisjoint]),
};
