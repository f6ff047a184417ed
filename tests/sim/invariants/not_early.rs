//! A session, a lease or a hold does not end by time before the end that its client computed from acknowledged
//! renewals, and its lock is not granted to another client before that end. (Promise 4.)

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "not early",
    sentence: "Nothing expires or is granted to another client before the end that its client computed from acknowledged renewals.",
    broken: |evidence| evidence.notes.sure.ended_early(evidence.notes.log()),
};
