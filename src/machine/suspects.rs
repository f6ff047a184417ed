//! Who may be in a circle of waiters since something changed, and what is done about it before the command is over.
//!
//! A new hold may close a circle, and so may fewer permits. A session that passes fewer waiting sets than before may be in
//! one by now: what lets it pass is noted before it changes.
//!
//! However many are suspected, what all searches of one command look at together is bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::graph::Graph;
use super::parties::{Party, holding_party, waiting_party};
use super::state::Session;
use crate::limits::{CIRCLE_LOOKED_AT_MAX, SUSPECTS_LOOKED_AT_MAX, SUSPECTS_ONE_BY_ONE_MAX};
use crate::model::{
    Claim, FencingToken, Kind, LeaveReason, LockKey, Namespace, OnDeadlock, Outcome, Refusal, SessionId,
};

/// Who may be in a circle since the present command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Suspects {
    parties: BTreeSet<Party>,
    pub(super) loosened: Loosened,
    /// What searches for circles looked at since the command began.
    looked_at: usize,
}

/// Sessions that may pass fewer waiters than before: something changed where they stand beside a waiting set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Loosened {
    sessions: BTreeSet<SessionId>,
    /// Semaphores all of whose sessions are among them already.
    all_at: BTreeSet<LockKey>,
    /// Places behind a set that has left; all behind these are among them already.
    behind: BTreeSet<u64>,
}

impl Suspects {
    fn spend(&mut self, looked_at: usize) {
        self.looked_at = self.looked_at.saturating_add(looked_at).min(SUSPECTS_LOOKED_AT_MAX);
    }

    /// How much one more search may look at.
    fn left(&self) -> usize {
        CIRCLE_LOOKED_AT_MAX.min(SUSPECTS_LOOKED_AT_MAX - self.looked_at)
    }
}

impl Machine {
    /// A holder that waits elsewhere, itself or by a nested run, may close a circle by what it holds now.
    pub(super) fn suspect(&mut self, key: &LockKey, token: FencingToken) {
        let holder = self.locks.get(key).and_then(|lock| lock.holders.get(&token)).map(Box::as_ref);
        let Some(party) = holder.and_then(holding_party) else { return };
        if self.parties.get(&party).is_some_and(|ties| !ties.waits.is_empty() || !ties.children.is_empty()) {
            self.suspects.parties.insert(party);
        }
    }

    /// A semaphore's limit was lowered: each of its waiters may need more to be given back than before.
    pub(super) fn suspect_waiters(&mut self, key: &LockKey) {
        let queue = self.locks.get(key).into_iter().flat_map(|lock| lock.queue.values());
        self.suspects.parties.extend(queue.filter_map(waiting_party));
    }

    /// A session stands at a lock where sets wait no longer as it did. Called before the change.
    pub(super) fn loosen(&mut self, key: &LockKey, changed: Claim) {
        if self.locks.get(key).is_some_and(|lock| lock.queue.has_sets()) {
            self.loosen_sessions(changed.session());
        }
    }

    /// Other permits than before are free of a semaphore that sets wait for: they may lack none now.
    pub(super) fn loosen_all(&mut self, key: &LockKey) {
        let lock = self.locks.get(key).filter(|lock| lock.queue.has_sets() && lock.kind == Kind::Semaphore);
        let Some(lock) = lock else { return };
        if self.suspects.loosened.all_at.insert(key.clone()) {
            let all: Vec<SessionId> = lock.claims().filter_map(|claim| claim.session()).collect();
            self.loosen_sessions(all);
        }
    }

    /// A set waits no longer: nobody passes over it those who stood behind it. Called before the change.
    pub(super) fn loosen_behind(&mut self, key: &LockKey, sequence: u64, set: Claim) {
        if self.suspects.loosened.behind.contains(&sequence) || !self.anybody_passes(&key.namespace) {
            return;
        }
        let behind = self.and_behind(vec![(sequence, key.clone(), set)]);
        self.suspects.loosened.behind.extend(behind.keys());
        self.loosen_sessions(behind.into_values().filter_map(|claim| claim.session()));
    }

    fn loosen_sessions(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        let sessions = sessions.into_iter().filter(|id| has_several(&self.sessions, *id));
        self.suspects.loosened.sessions.extend(sessions);
    }

    fn anybody_passes(&self, namespace: &Namespace) -> bool {
        let mut sessions = self.shared_in(namespace).flat_map(|(_, lock)| lock.claims()).filter_map(|of| of.session());
        sessions.any(|id| has_several(&self.sessions, id))
    }

    /// Those who may pass fewer than before may be in a circle by now.
    fn suspect_loosened(&mut self) {
        for session in std::mem::take(&mut self.suspects.loosened).sessions {
            self.suspects.parties.extend(self.waiting_parties(session));
        }
    }

    /// After grants: a party that holds more now and waits elsewhere may have closed a circle. The newest of its waits that
    /// does not want to wait all the same is refused; where it waits for nothing but its nested runs, one of theirs. Answers
    /// whether one was; if not, nobody is suspected any more.
    pub(super) fn break_circles(&mut self) -> bool {
        self.suspect_loosened();
        self.clear_many();
        let mut nesting = BTreeSet::new();
        while let Some(party) = self.suspects.parties.pop_first() {
            let may_look = self.suspects.left();
            let mut left = may_look;
            let circle = self.circle_of(&party, &mut left);
            self.suspects.spend(may_look - left);
            let Some(circle) = circle else { continue };
            let waits = self.parties.get(&party).into_iter().flat_map(|ties| &ties.waits);
            let waits = waits.filter(|(key, sequence)| self.may_be_refused(key, *sequence));
            let newest = waits.max_by_key(|(key, sequence)| (*sequence, key.clone())).cloned();
            let Some((key, sequence)) = newest else {
                let runs = self.parties.get(&party).into_iter().flat_map(|ties| ties.children.keys().cloned());
                nesting.insert(party);
                self.suspects.parties.extend(runs.filter(|run| !nesting.contains(run)));
                continue;
            };
            let refused = Outcome::Refused(Refusal::Deadlock { circle });
            self.leave_with(&key, sequence, LeaveReason::Deadlock, refused);
            self.suspects.parties.insert(party);
            return true;
        }
        self.suspects = Suspects::default();
        false
    }

    /// Looks at everything that many need in one go, and clears those who are in no circle.
    fn clear_many(&mut self) {
        if self.suspects.parties.len() <= SUSPECTS_ONE_BY_ONE_MAX {
            return;
        }
        let may_look = self.suspects.left();
        let mut graph = Graph::of(self.suspects.parties.clone(), may_look);
        let whole = self.explore_all(&mut graph);
        self.suspects.spend(may_look - graph.left());
        if whole {
            let left = graph.reduce();
            let waited_for = graph.waited_for(left);
            let mut waited_for = waited_for.into_iter();
            self.suspects.parties.retain(|_| waited_for.next() == Some(true));
        }
    }

    fn may_be_refused(&self, key: &LockKey, sequence: u64) -> bool {
        let waiter = self.locks.get(key).and_then(|lock| lock.queue.get(&sequence));
        waiter.is_some_and(|waiter| waiter.choices().deadlock == OnDeadlock::Refuse)
    }
}

/// Only by another request than the one that waits does a session pass anybody.
fn has_several(sessions: &BTreeMap<SessionId, Box<Session>>, id: SessionId) -> bool {
    sessions.get(&id).is_some_and(|session| 1 < session.requests())
}
