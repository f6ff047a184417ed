//! Conflicting grants never overlap in the log; no clocks are involved. (Promise 1.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "one holder",
    sentence: "Conflicting grants never overlap in the log; no clocks are involved.",
    broken: |evidence| evidence.rules(&[Rule::OneHolder, Rule::EndsWhatWas]),
};
