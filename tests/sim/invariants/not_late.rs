//! A dead holder's session ends within its TTL and half a second in which a leader could commit. (Promise 5.) What
//! breaks it is found by the stories, each in its own place.

use super::Invariant;

pub(crate) const NAME: &str = "not late";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A dead holder's session ends within its TTL and half a second in which a leader could commit.",
    broken: |evidence| evidence.found_by_story(NAME),
};
