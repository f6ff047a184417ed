//! The operations of clients on one lock, as the clients saw them, could have happened one after the other. This uses
//! only what clients saw, so it is independent of the replay of the log. (Promises 1 and 2; reads are linearizable.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "linearizable",
    sentence: "What clients saw of one lock could have happened one operation after the other, each between its call and its answer.",
    broken: |evidence| evidence.rules(&[Rule::Linearizable]),
};
