//! A node without a quorum grants, renews and confirms nothing. (Promise 7.) The scenarios themselves check this.

use super::Invariant;

pub(crate) const NAME: &str = "a minority is mute";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A node without a quorum grants, renews and confirms nothing.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
