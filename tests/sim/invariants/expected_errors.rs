//! Clients get errors of outages and lost sessions, and no other errors.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "expected errors",
    sentence: "A correct client gets neither a refusal of its request as wrong nor an internal error.",
    broken: |evidence| evidence.notes.odd.clone(),
};
