//! After all faults have ended, the cluster serves again, and all clients end. The scenarios themselves check this.

use super::Invariant;

pub(crate) const NAME: &str = "progress";

pub(super) const THIS: Invariant = Invariant {
    name: NAME,
    sentence: "After all faults have ended the cluster serves again, and all clients end.",
    broken: |evidence| evidence.found_by_scenario(NAME),
};
