//! Adds what the naive model leaves out: refused takes are remembered, with their payload and answer.

#![allow(clippy::wildcard_enum_match_arm, reason = "a model looks at one command among many")]

use super::naive::Naive;
use crate::model::*;

struct Refused {
    take: TakeLease,
    outcome: Outcome,
    until: LogTime,
}

/// The naive model, one command at a time, and the takes that were refused in the last ten minutes.
#[derive(Default)]
pub(super) struct Remembering {
    pub(super) naive: Naive,
    now: LogTime,
    refused: Vec<Refused>,
    /// Every grant of the newest entry.
    pub(super) granted: Vec<(LockKey, Claim, FencingToken)>,
    /// Every hold that was recalled in the newest entry.
    pub(super) recalls: Vec<FencingToken>,
    /// For each answer of the newest entry, the recalled holds that it contains.
    pub(super) named: Vec<Vec<FencingToken>>,
}

const TEN_MINUTES_MS: u64 = 600_000;

impl Remembering {
    pub(super) fn apply(&mut self, entry: &Entry) -> (Vec<Outcome>, Vec<Outcome>) {
        self.now = self.now.max(entry.stamp);
        let (renewals, _) = self.naive.apply(&Entry { commands: vec![], ..entry.clone() });
        self.granted = self.naive.granted.clone();
        self.recalls = self.naive.recalls.clone();
        self.named = self.naive.named.clone();
        let now = self.now;
        self.refused.retain(|refused| now <= refused.until);
        let outcomes = entry.commands.iter().map(|submission| self.execute(entry, submission)).collect();
        (renewals, outcomes)
    }

    fn execute(&mut self, entry: &Entry, submission: &Submission) -> Outcome {
        if let Some(outcome) = self.known(&submission.command) {
            self.named.push(vec![]);
            return outcome;
        }
        let alone = Entry { renewals: vec![], commands: vec![submission.clone()], ..entry.clone() };
        let seen = match &submission.command {
            Command::TakeLease(take) => self.naive.knows(&take.lock, take.take),
            _ => false,
        };
        let outcome = self.naive.apply(&alone).1.remove(0);
        self.granted.append(&mut self.naive.granted);
        self.recalls.append(&mut self.naive.recalls);
        self.named.append(&mut self.naive.named);
        if let (Command::TakeLease(take), Outcome::Refused(refusal), false) = (&submission.command, &outcome, seen) {
            self.refused(take, refusal);
        }
        outcome
    }

    /// Remembers the refusal of a take, unless the take is known already.
    fn refused(&mut self, take: &TakeLease, refusal: &Refusal) {
        let refusal = match refusal.clone() {
            Refusal::WrongHandle | Refusal::RequestReused { .. } => return,
            Refusal::Held { lock, .. } => Refusal::Held { lock, holder: None, closed: None },
            refusal => refusal,
        };
        let (outcome, until) = (Outcome::Refused(refusal), self.now.after_ms(TEN_MINUTES_MS));
        self.refused.push(Refused { take: take.clone(), outcome, until });
    }

    /// The answer to a take that was refused before, or to its cancel.
    fn known(&self, command: &Command) -> Option<Outcome> {
        let (lock, id, handle, asked) = match command {
            Command::TakeLease(take) => (&take.lock, take.take, &take.handle, Some(take)),
            Command::CancelTake { lock, take, handle } => (lock, *take, handle, None),
            _ => return None,
        };
        let known = self.refused.iter().find(|known| known.take.lock == *lock && known.take.take == id)?;
        if known.take.handle != *handle {
            return Some(Outcome::Refused(Refusal::WrongHandle));
        }
        let Some(asked) = asked else { return Some(Outcome::Withdrawn) };
        let same =
            TakeLease { patience: known.take.patience, claim_ms: known.take.claim_ms, ..asked.clone() } == known.take;
        let reused = Outcome::Refused(Refusal::RequestReused { claim: Claim::Lease(id) });
        Some(if same { known.outcome.clone() } else { reused })
    }
}
