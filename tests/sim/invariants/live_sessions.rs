//! Nobody without a live session waits or holds, and a session that ends leaves nothing behind.

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "live sessions",
    sentence: "Nobody without a live session waits or holds, and a session that ends leaves nothing behind.",
    broken: |evidence| evidence.rules(&[Rule::LiveSessions]),
};
