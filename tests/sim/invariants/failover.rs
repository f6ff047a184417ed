//! A leader whose process is gone is replaced without the election timeout, and a live one is never deposed. The
//! scenarios themselves check this.

use super::Invariant;

pub(crate) const NAME: &str = "a dead leader is replaced at once, a live one never";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "A quorum of voters finds the leader's process gone, or there is no election.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
