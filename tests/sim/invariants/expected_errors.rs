//! Clients meet outages and lost sessions, and no other errors.

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "expected errors",
    sentence: "A client that does nothing wrong is never told that it did, nor of an internal error.",
    broken: |evidence| evidence.notes.odd.clone(),
};
