//! A story ends as the manual says it must. What breaks it is found by the stories, each in its own place.

use super::Invariant;

pub(crate) const NAME: &str = "what is told is so";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A story ends as the manual says it must.",
    broken: |evidence| evidence.found_by_story(NAME),
};
