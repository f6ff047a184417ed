//! A repeated request waits once and holds once.

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "once a request",
    sentence: "A repeated request waits once and holds once.",
    broken: |evidence| evidence.rules(&[Rule::OnceARequest]),
};
