//! Nothing panics, openraft's own assertions included.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "no panic",
    sentence: "Nothing panics, whatever fails; openraft's own assertions are on.",
    broken: |evidence| evidence.panics.clone(),
};
