//! What the machine notes: everything that happens to holders, as it happens.

use crate::audit::{Draft, Facts};
use crate::machine::Machine;
use crate::machine::state::{Holder, Waiter, kind_of};
use crate::model::{Arrival, ChainHash, Claim, EventKind, Fairness, FencingToken, Kind, LockKey, Mode, Subject};

/// By what right somebody gets a lock.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine) struct Entrance {
    arrival: Arrival,
    fairness: Fairness,
}

impl Entrance {
    /// From its place in the queue.
    pub(in crate::machine) fn from_queue(sequence: u64, waiter: &Waiter) -> Self {
        Self { arrival: Arrival { sequence, queued: true }, fairness: waiter.request.choices().fairness }
    }
}

impl Machine {
    /// Without waiting.
    pub(in crate::machine) fn at_once(&self, fairness: Fairness) -> Entrance {
        Entrance { arrival: Arrival { sequence: self.globals.sequences, queued: false }, fairness }
    }

    /// A new holder has the lock, under this token.
    pub(in crate::machine) fn granted(
        &mut self,
        key: &LockKey,
        token: FencingToken,
        kind: EventKind,
        holder: &Holder,
        entrance: Entrance,
    ) {
        let who = holder.request.metadata.name();
        let facts = Facts {
            arrival: entrance.arrival,
            fairness: entrance.fairness,
            set: holder.in_set(),
            passing: self.locks.get(key).is_some_and(|lock| lock.queue.has_sets()),
            owner: holder.request.owner.as_ref().map(|owner| owner.as_str()),
            principal: holder.request.principal.as_str(),
            who: &who,
            why: &holder.request.metadata.why,
        };
        let subject = Subject::hold(key, holder.request.claim, token);
        self.note(key, subject, kind, (Some(holder.request.mode), Some(facts)));
    }

    /// Something else happened to a hold of the lock, or to the lock itself.
    pub(in crate::machine) fn happened(
        &mut self,
        key: &LockKey,
        hold: Option<(Claim, FencingToken)>,
        kind: EventKind,
        mode: Option<Mode>,
    ) {
        let (claim, token) = hold.unzip();
        self.note(key, Subject::Lock { lock: key.clone(), claim, token }, kind, (mode, None));
    }

    fn note(
        &mut self,
        key: &LockKey,
        subject: Subject,
        kind: EventKind,
        (mode, facts): (Option<Mode>, Option<Facts<'_>>),
    ) {
        let event = self.next_event(Some(key.namespace.clone()), subject, kind);
        let semaphore = mode.filter(|mode| kind_of(*mode) == Kind::Semaphore).and_then(|_| self.locks.get(key));
        let limit = semaphore.and_then(|lock| lock.limit);
        let draft = Draft { event: &event, lock: &key.name, mode, limit, facts, previous: ChainHash::BEGINNING };
        self.history.append(&key.namespace, draft, &mut self.globals.history_floor, &mut self.dirty);
        self.events.push(event);
    }
}
