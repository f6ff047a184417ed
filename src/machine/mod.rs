//! The deterministic lock state machine: decides which request holds which lock, and when each hold ends.
//!
//! Knows: limits, model. Never: a clock, randomness, async, disks, openraft, tracing.
//!
//! [`Machine::apply`] applies one [`Entry`](crate::model::Entry) and returns a reply for each of its renewals and
//! commands. It cannot fail: a refusal is a reply, the same on every node. The entry's stamp is its only source of
//! time.
//!
//! - Equal logs give equal machines, with equal bytes in their records.
//! - Order within an entry: first renewals, then everything that is due ends, then the commands. What a command frees
//!   is granted before the next command.
//! - [`Machine::check`] checks the invariants. Tests run it after every entry.

mod acquire;
mod admin;
mod admission;
mod advance;
mod apply;
mod cached;
mod check;
mod cycle;
mod deadlock;
mod delay;
mod documents;
mod events;
mod expiry;
mod explain;
mod grant;
mod hold;
mod lease;
mod listings;
mod principals;
mod query;
mod queue;
mod replay;
mod requests;
mod restore;
mod session;
mod sizes;
mod unlock;
mod upgrade;
#[cfg(test)]
pub(crate) mod tests;

pub use sizes::{NamespaceSizes, Waits};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    ClusterSettings, Event, Handle, LockKey, LogTime, Namespace, Position, Quotas, Refusal, RefusedDeadlock, Reply,
    SessionId, Totals,
};
use crate::state::{CorruptRecords, OwnerKey, Record, RecordKey, State};

/// The results of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// One reply for each renewal, in order.
    pub renewals: Vec<Reply>,
    /// One reply for each command, in order.
    pub commands: Vec<Reply>,
    /// The events, in the order in which they happened. They are shared with subscribers, in one piece for each entry.
    pub events: Arc<[Event]>,
    /// The deadlocks that it refused.
    pub deadlocks: Vec<RefusedDeadlock>,
    /// For each hand-over among the events, in order: how long its successor had waited, in milliseconds of log time.
    /// `None` if the successor was not in the queue.
    pub handed_over: Vec<Option<u64>>,
}

/// All locks, sessions and queues, and the work that the current entry and command have left. Equal logs give equal
/// machines.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    state: State,
    /// Bounds of the state. They are the same on every node and are not part of the state.
    quotas: Quotas,
    /// Owners to check for a deadlock before this command ends.
    to_check: ToCheck,
    /// How many steps the deadlock checks of this entry may still take.
    deadlock_steps_left: usize,
    /// How many owners were not checked since this machine was created, because an entry had no steps left.
    deadlock_checks_skipped: u64,
    /// Events of the entry that is being applied.
    events: Vec<Event>,
    /// Deadlocks that the entry has refused so far.
    deadlocks: Vec<RefusedDeadlock>,
    /// The waits that the hand-overs of the entry have ended so far, see [`Applied::handed_over`].
    handed_over: Vec<Option<u64>>,
    /// Locks whose cached hold may have to be recalled at the end of this command.
    to_recall: BTreeSet<LockKey>,
    /// Queues to check before this command ends, each from this sequence number on.
    queues_to_check: BTreeMap<LockKey, u64>,
    /// Whether the sweep of this entry reached its bound and left something that is due.
    sweep_incomplete: bool,
    /// Locks at which the commands of this entry have ended what the sweep left.
    swept: BTreeSet<LockKey>,
    /// The namespaces of this entry's commands on more documents than one command frees at once.
    large_unlocks: Vec<Namespace>,
    /// How many documents the commands of this entry that free documents have looked at.
    unlocks_looked: usize,
}

/// Owners to check for a deadlock before this command ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ToCheck {
    owners: BTreeSet<OwnerKey>,
    /// Locks where sets wait, or waited before this command, and where a hold, a wait or the capacity changed.
    changed: BTreeSet<LockKey>,
    /// The sessions whose claims changed at those locks.
    sessions: BTreeSet<SessionId>,
}

impl Machine {
    /// An empty machine, before its first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds the machine that these records describe. Their order does not matter. Returns an error if they contradict
    /// each other.
    pub fn from_records(records: impl IntoIterator<Item = (RecordKey, Record)>) -> Result<Self, CorruptRecords> {
        let mut machine = Self { state: State::from_records(records)?, ..Self::default() };
        // A stored state has something due only if a sweep reached its bound.
        machine.sweep_incomplete = machine.is_due();
        Ok(machine)
    }

    /// The replicated state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Calls `fold` with the key of each changed record, see [`State::take_dirty`].
    pub fn take_dirty(&mut self, fold: impl FnMut(&State, RecordKey)) {
        self.state.take_dirty(fold);
    }

    /// Log index of the newest applied entry.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.state.globals.applied
    }

    /// Position of the newest event, or the start if nothing has happened yet. A snapshot carries it. A subscriber that
    /// has every event up to this position has missed none.
    #[must_use]
    pub fn newest_event(&self) -> Position {
        self.state.globals.newest_event
    }

    /// Log time: the newest stamp.
    #[must_use]
    pub fn now(&self) -> LogTime {
        self.state.globals.now
    }

    /// The earliest deadline; `None` if nothing has one.
    #[must_use]
    pub fn next_deadline(&self) -> Option<LogTime> {
        let late_ms = if faults::on(Fault::LateExpiry) { limits::LAN_TTL_MS_MIN } else { 0 };
        self.state.index.deadlines.first().map(|(deadline, _)| deadline.after_ms(late_ms))
    }

    /// Whether a deadline has passed that no entry has acted on yet.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let early = u64::from(faults::on(Fault::ExpiryOneEarly));
        self.next_deadline().is_some_and(|deadline| deadline < self.now().after_ms(early))
    }

    /// Refuses a handle that does not prove this session, and a namespace other than the session's. Accepts a session
    /// that has ended, because the command itself is answered with its end.
    pub fn proves(&self, id: SessionId, handle: &Handle, namespace: &Namespace) -> Result<(), Refusal> {
        let Some(session) = self.state.session(id) else { return Ok(()) };
        if session.record.handle != *handle {
            return Err(Refusal::WrongHandle);
        }
        self.lives_in(id, namespace)
    }

    /// Refuses a namespace other than the session's.
    fn lives_in(&self, id: SessionId, namespace: &Namespace) -> Result<(), Refusal> {
        let Some(own) = self.namespace_of(id).filter(|own| *own != namespace) else { return Ok(()) };
        Err(Refusal::OtherNamespace { session: id, namespace: own.clone(), asked: namespace.clone() })
    }

    /// The namespace of this session. `None` if it is not open.
    #[must_use]
    pub fn namespace_of(&self, session: SessionId) -> Option<&Namespace> {
        self.state.session(session).map(|session| &session.record.namespace)
    }

    /// Whether this session is open.
    #[must_use]
    pub fn lives(&self, session: SessionId) -> bool {
        self.state.sessions.contains_key(&session)
    }

    /// The cluster's settings, once its first leader has set them.
    #[must_use]
    pub fn settings(&self) -> Option<ClusterSettings> {
        self.state.globals.settings
    }

    /// The cluster's id, once its first leader has fixed it.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u128> {
        self.state.globals.cluster_id
    }

    /// How many owners were not checked for a deadlock since this machine was created, because the checks of their
    /// entry took too many steps.
    #[must_use]
    pub fn deadlock_checks_skipped(&self) -> u64 {
        self.deadlock_checks_skipped
    }

    /// Sizes of the whole state.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals { grants: self.state.globals.tokens, ..self.state.index.totals }
    }

    /// The shortest TTL of a session, and the longest TTL and lease, in milliseconds.
    #[must_use]
    pub fn ttl_ms_bounds(&self) -> (u64, u64) {
        self.state.globals.settings.map_or((limits::LEASE_MS_MIN, limits::TTL_MS_MAX_DEFAULT), |settings| {
            (settings.ttl_ms_min, self.state.globals.ttl_ms_max.unwrap_or(settings.ttl_ms_max))
        })
    }
}
