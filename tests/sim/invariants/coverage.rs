//! A run whose faults did not bite proves nothing, and says so.

use super::Invariant;

pub(crate) const NAME: &str = "coverage";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "The story gets where it goes, and each of its faults bites.",
    broken: |evidence| evidence.found_by_story(NAME),
};
