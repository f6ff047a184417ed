//! Everything that was acknowledged to a client is in the log, even if nodes are killed or lose power. (Promise 6.)

use super::Invariant;
use crate::checker::Rule;

pub(crate) const NAME: &str = "nothing acknowledged is lost";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "Everything that was acknowledged to a client is in the log, even if nodes are killed or lose power.",
    broken: |evidence| {
        let lost = evidence.rules(&[Rule::AcknowledgedHappened]);
        lost.into_iter().chain(evidence.found_by_scenario(NAME)).collect()
    },
};
