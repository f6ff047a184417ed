//! Events and history: the events of an entry, in order, each with its position, and the history of holds, as records.

use super::Machine;
use crate::history::{Draft, Facts, SegmentChange};
use crate::model::{
    Arrival, ChainHash, Claim, Event, EventKind, Fairness, FencingToken, Kind, LockKey, Mode, Namespace, Position,
    Subject,
};
use crate::state::{Holder, RecordKey, Waiter};

/// How a grant came about: queued or at once, fair or barging.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantOrigin {
    arrival: Arrival,
    fairness: Fairness,
}

impl GrantOrigin {
    /// The origin of a grant from the queue.
    pub(super) fn from_queue(sequence: u64, waiter: &Waiter) -> Self {
        Self { arrival: Arrival { sequence, queued: true }, fairness: waiter.request.choices().fairness }
    }
}

impl Machine {
    /// Emits an event. `None` is for an event of the whole cluster.
    pub(super) fn event(&mut self, namespace: Option<Namespace>, subject: Subject, kind: EventKind) {
        let event = self.next_event(namespace, subject, kind);
        self.events.push(event);
    }

    /// Builds the next event without emitting it.
    pub(super) fn next_event(&self, namespace: Option<Namespace>, subject: Subject, kind: EventKind) -> Event {
        let n = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let position = Position { index: self.state.globals.applied, n };
        Event { position, at: self.state.globals.now, wall: self.state.globals.wall, namespace, subject, kind }
    }

    /// The origin of a grant without a wait.
    pub(super) fn at_once(&self, fairness: Fairness) -> GrantOrigin {
        GrantOrigin { arrival: Arrival { sequence: self.state.globals.sequences, queued: false }, fairness }
    }

    /// Emits the event of a grant to a new holder, under this token, and records it in the history.
    pub(super) fn granted(
        &mut self,
        key: &LockKey,
        token: FencingToken,
        kind: EventKind,
        holder: &Holder,
        origin: GrantOrigin,
    ) {
        let who = holder.request.metadata.name();
        let facts = Facts {
            arrival: origin.arrival,
            fairness: origin.fairness,
            set: holder.in_set(),
            passing: self.state.lock(key).is_some_and(|lock| lock.queue.has_sets()),
            owner: holder.request.owner.as_ref().map(|owner| owner.as_str()),
            principal: holder.request.principal.as_str(),
            who: &who,
            why: &holder.request.metadata.why,
        };
        let subject = Subject::hold(key, holder.request.claim, token);
        self.note(key, subject, kind, (Some(holder.request.mode), Some(facts)));
    }

    /// Emits another event of a hold of the lock, or of the lock itself, and records it in the history.
    pub(super) fn happened(
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
        let semaphore = mode.filter(|mode| mode.kind() == Kind::Semaphore).and_then(|_| self.state.lock(key));
        let limit = semaphore.and_then(|lock| lock.limit);
        let draft = Draft { event: &event, lock: &key.name, mode, limit, facts, previous: ChainHash::BEGINNING };
        let dirty = &mut self.state.dirty;
        self.state.history.append(
            &key.namespace,
            draft,
            &mut self.state.globals.history_floor,
            |namespace, number, change| {
                let key = RecordKey::History(namespace, number);
                match change {
                    SegmentChange::Written => dirty.touched(key),
                    SegmentChange::Dropped => dirty.gone(key),
                }
            },
        );
        self.events.push(event);
    }
}
