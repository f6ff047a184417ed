//! A node without a quorum grants, renews and confirms nothing. (Promise 7.) What breaks it is found by the stories,
//! each in its own place.

use super::Invariant;

pub(crate) const NAME: &str = "a minority is mute";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A node without a quorum grants, renews and confirms nothing.",
    broken: |evidence| evidence.found_by_story(NAME),
};
