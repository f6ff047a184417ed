//! Nothing panics, including openraft's own assertions.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "no panic",
    sentence: "Nothing panics under any fault; openraft's own assertions are enabled.",
    broken: |evidence| evidence.panics.clone(),
};
