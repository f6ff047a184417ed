//! Once everything is healed the cluster serves again, and everybody comes to an end.
//! What breaks it is found by the stories, each in its own place.

use super::Invariant;

pub(crate) const NAME: &str = "progress";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "Once everything is healed the cluster serves again, and everybody comes to an end.",
    broken: |evidence| evidence.found_by_story(NAME),
};
