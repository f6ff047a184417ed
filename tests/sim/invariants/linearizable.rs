//! What clients saw of one lock could have happened one after the other. It asks the clients alone, and so cross-checks the
//! replay of the log. (Promises 1 and 2; reads are linearizable.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "linearizable",
    sentence: "What clients saw of one lock could have happened one after the other, each call between its beginning and its answer.",
    broken: |evidence| evidence.rules(&[Rule::Linearizable]),
};
