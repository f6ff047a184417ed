//! What the machine notes: everything that happens to holders, as it happens.

use crate::audit::{Draft, Facts};
use crate::machine::Machine;
use crate::machine::state::{Holder, Waiter, kind_of};
use crate::model::{Arrival, ChainHash, EventKind, Fairness, Kind, LockKey, Mode, Position};

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

    /// Somebody new holds the lock.
    pub(in crate::machine) fn granted(&mut self, key: &LockKey, kind: EventKind, holder: &Holder, entrance: Entrance) {
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
        self.note(key, &kind, Some(holder.request.mode), Some(facts));
        self.event(Some(key.namespace.clone()), kind);
    }

    /// Something else happened to the lock's holders.
    pub(in crate::machine) fn happened(&mut self, key: &LockKey, kind: EventKind, mode: Option<Mode>) {
        self.note(key, &kind, mode, None);
        self.event(Some(key.namespace.clone()), kind);
    }

    fn note(&mut self, key: &LockKey, kind: &EventKind, mode: Option<Mode>, facts: Option<Facts<'_>>) {
        let n = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let semaphore = mode.filter(|mode| kind_of(*mode) == Kind::Semaphore).and_then(|_| self.locks.get(key));
        let draft = Draft {
            position: Position { index: self.globals.applied, n },
            at: self.globals.now,
            wall: self.globals.wall,
            lock: &key.name,
            kind,
            mode,
            limit: semaphore.and_then(|lock| lock.limit),
            facts,
            previous: ChainHash::BEGINNING,
        };
        self.history.append(&key.namespace, draft, &mut self.globals.history_floor, &mut self.dirty);
    }
}
