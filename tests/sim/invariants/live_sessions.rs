//! Only clients with live sessions wait or hold, and a session that ends leaves no hold or wait.

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "live sessions",
    sentence: "Only clients with live sessions wait or hold, and a session that ends leaves no hold or wait.",
    broken: |evidence| evidence.rules(&[Rule::LiveSessions]),
};
