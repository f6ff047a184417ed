//! The session of a dead holder ends within its TTL and half a second of time in which a leader could commit. (Promise
//! 5.) The scenarios themselves check this.

use super::Invariant;

pub(crate) const NAME: &str = "not late";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "The session of a dead holder ends within its TTL and half a second of time in which a leader could commit.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
