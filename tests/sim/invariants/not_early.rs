//! A session, a lease or a hold does not end by time before the end that its client computed from acknowledged renewals, nor is
//! its lock granted to another before that. (Promise 4.)

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "not early",
    sentence: "Nothing expires or goes to another before the end that its client computed from acknowledged renewals.",
    broken: |evidence| evidence.notes.sure.ended_early(evidence.notes.log()),
};
