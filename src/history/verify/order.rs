//! First come, first served: if two requests for a lock were granted, the one that arrived first was granted first,
//! except by the rules.
//!
//! The exceptions: shared requests overtake shared waiters; barging requests overtake each other; a session that holds
//! what a waiting set lacks overtakes the set and all waiters behind it. A hand-over, a resume or an upgrade has no
//! place in the order, and its record says so.

use std::collections::BTreeMap;

use super::holds::Holds;
use crate::model::{Arrival, EventKind, Fairness, FencingToken, GrantFacts, HistoryRecord, LockName, Mode, Subject};

/// The grants in the records that were read so far, in the order of arrival of their requests.
#[derive(Default)]
pub(super) struct Arrivals<'a> {
    locks: BTreeMap<&'a LockName, BTreeMap<(u64, FencingToken), Passer>>,
}

struct Passer {
    mode: Mode,
    fairness: Fairness,
    /// Whether a set waited in the same queue, and the session held something that the set may have lacked.
    may_pass: bool,
}

/// The sort key of an arrival. With equal sequence numbers, a waiter sorts before requests that did not wait.
fn key(arrival: Arrival) -> u64 {
    arrival.sequence.saturating_mul(2).saturating_add(u64::from(!arrival.queued))
}

impl<'a> Arrivals<'a> {
    pub(super) fn add(&mut self, record: &'a HistoryRecord, holds: &Holds<'a>) -> Result<(), String> {
        let EventKind::Granted { mode, .. } = &record.event.kind else { return Ok(()) };
        let Subject::Lock { lock, claim: Some(claim), token: Some(token) } = &record.event.subject else {
            return Ok(());
        };
        let Some(facts) = &record.grant else { return Err("a grant that does not say who got it".into()) };
        let earlier = self.locks.entry(&lock.name).or_default();
        if facts.arrival.queued {
            let mut later = earlier.range((key(facts.arrival) + 1, FencingToken::new(0, 0))..);
            let passed = later.find(|(_, passer)| !passer.may_have_passed(facts, *mode));
            if let Some(((_, first), _)) = passed {
                return Err(format!(
                    "token {token} of {:?} was asked for before token {first} and granted after it: not first come, \
                     first served",
                    lock.name
                ));
            }
        }
        let may_pass = facts.passing && holds.may_hold_more(*claim);
        let passer = Passer { mode: *mode, fairness: facts.fairness, may_pass };
        earlier.insert((key(facts.arrival), *token), passer);
        Ok(())
    }
}

impl Passer {
    /// Whether this grant may have overtaken the waiter with these facts.
    fn may_have_passed(&self, waiter: &GrantFacts, mode: Mode) -> bool {
        let share = self.mode == Mode::Shared && mode == Mode::Shared;
        let by_kind = match (self.fairness, waiter.fairness) {
            (Fairness::Barging, Fairness::Barging) => true,
            // A barging request overtakes no fair waiter, even if both could hold the lock. A set waits in several
            // queues.
            (Fairness::Barging, Fairness::Fair) => share && waiter.set,
            (Fairness::Fair, _) => share,
        };
        by_kind || self.may_pass
    }
}
