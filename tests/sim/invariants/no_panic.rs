//! Nothing panics, including openraft's own assertions.

use super::Invariant;

pub(crate) const NAME: &str = "no panic";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "Nothing panics under any fault; openraft's own assertions are enabled.",
    broken: |evidence| evidence.panics.clone(),
};
