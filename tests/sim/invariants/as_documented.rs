//! A scenario ends as the manual says. The scenarios themselves check this.

use super::Invariant;

pub(crate) const NAME: &str = "as the manual says";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A scenario ends as the manual says.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
