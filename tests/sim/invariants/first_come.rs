//! Waiters are granted in the order in which the log received them. A waiter whose session ended is skipped. (Promise
//! 3.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "first come, first served",
    sentence: "Waiters are granted in the order in which the log received them; a waiter whose session ended is skipped.",
    broken: |evidence| evidence.rules(&[Rule::FirstComeFirstServed]),
};
