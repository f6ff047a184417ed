//! The invariants of every run, one in each file. If one is broken, the sentence that it checks is printed.

pub(crate) mod as_documented;
mod beliefs_disjoint;
pub(crate) mod coverage;
mod equal_states;
mod events_complete;
mod expected_errors;
pub(crate) mod failover;
mod first_come;
pub(crate) mod in_time;
mod linearizable;
mod live_sessions;
pub(crate) mod mute;
pub(crate) mod no_panic;
mod not_early;
pub(crate) mod not_late;
pub(crate) mod nothing_lost;
mod once_a_request;
mod one_holder;
pub(crate) mod progress;
mod sound_machine;
mod tokens_grow;

use crate::checker::{Rule, Violation};
use crate::run::Notes;

/// Everything that a run recorded.
pub(crate) struct Evidence<'a> {
    pub(crate) notes: &'a Notes,
    /// The violations that the replay of the log's events found.
    pub(crate) violations: Vec<Violation>,
    /// For each running node, the applied index and the digest, or the invariant of its machine that does not hold.
    pub(crate) states: Vec<Result<(u64, u128), String>>,
    pub(crate) panics: Vec<String>,
}

impl Evidence<'_> {
    fn rules(&self, rules: &[Rule]) -> Vec<String> {
        let of_these = self.violations.iter().filter(|violation| rules.contains(&violation.rule));
        of_these.map(|violation| violation.what.clone()).collect()
    }

    fn found_by_scenario(&self, invariant: &str) -> Vec<String> {
        self.notes.found.iter().filter(|(name, _)| *name == invariant).map(|(_, what)| what.clone()).collect()
    }
}

/// A condition that holds in every run.
pub(crate) struct Invariant {
    pub(crate) name: &'static str,
    /// The sentence of the manual or of the semantics that is checked.
    pub(crate) sentence: &'static str,
    /// The violations of the condition.
    pub(crate) broken: fn(&Evidence<'_>) -> Vec<String>,
}

/// All invariants. Coverage is the last one, because a violation is more important than a fault without effect.
pub(crate) const ALL: &[Invariant] = &[
    as_documented::THIS,
    beliefs_disjoint::THIS,
    equal_states::THIS,
    events_complete::THIS,
    expected_errors::THIS,
    failover::THIS,
    first_come::THIS,
    in_time::THIS,
    linearizable::THIS,
    live_sessions::THIS,
    mute::THIS,
    no_panic::THIS,
    not_early::THIS,
    not_late::THIS,
    nothing_lost::THIS,
    once_a_request::THIS,
    one_holder::THIS,
    progress::THIS,
    sound_machine::THIS,
    tokens_grow::THIS,
    coverage::THIS,
];
