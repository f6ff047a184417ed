//! What a client was told happened stands in the log, whatever was killed and whatever power was cut. (Promise 6.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "nothing acknowledged is lost",
    sentence: "What a client was told happened stands in the log, whatever was killed and whatever power was cut.",
    broken: |evidence| evidence.rules(&[Rule::AcknowledgedHappened]),
};
