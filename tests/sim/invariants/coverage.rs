//! A run whose faults had no effect proves nothing, so it fails.

use super::Invariant;

pub(crate) const NAME: &str = "coverage";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "The scenario completes, and each of its faults takes effect.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
