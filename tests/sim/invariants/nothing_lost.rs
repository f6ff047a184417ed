//! Everything that was acknowledged to a client is in the log, even if nodes are killed or lose power. (Promise 6.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "nothing acknowledged is lost",
    sentence: "Everything that was acknowledged to a client is in the log, even if nodes are killed or lose power.",
    broken: |evidence| evidence.rules(&[Rule::AcknowledgedHappened]),
};
