//! A renewal that its leader received in time counts, however long it waits for an entry. The scenarios themselves
//! check this.

use super::Invariant;

pub(crate) const NAME: &str = "in time";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A renewal that its leader received in time counts, however long it waits for an entry.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
