//! The deterministic lock state machine: decides who holds what, and when it ends.
//!
//! Knows: limits, model. Never: a clock, randomness, async, disks, openraft, tracing.
//!
//! [`Machine::apply`] takes one [`Entry`](crate::model::Entry) and answers each of its renewals and commands. It
//! cannot fail: a refusal is an answer, the same on every node. Time is the entry's stamp, and nothing else.
//!
//! - Equal logs give equal machines, down to the bytes of their records.
//! - Within an entry: renewals first, then everything that is due is ended, then the commands, each with what it frees
//!   granted before the next.
//! - [`Machine::check`] states the invariants; tests run it after every entry.

mod acquire;
mod admin;
mod advance;
mod apply;
mod cached;
mod check;
mod cycle;
mod deadlock;
mod delay;
mod document_index;
mod documents;
mod events;
mod expiry;
mod explain;
mod grant;
mod lock;
mod owners;
mod query;
mod queue;
mod rebuild;
mod record;
mod replay;
mod requests;
mod session;
pub mod state;
mod hold;
mod lease;
mod upgrade;
mod waiters;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use crate::history::Segment;
pub use record::{CorruptRecords, Record, RecordKey};

use crate::faults::{self, Fault};
use crate::history::History;
use crate::limits;
use crate::model::{
    Announcement, ClusterSettings, Event, Handle, LeaseRequestId, LockKey, LogTime, Namespace, Position, Quotas,
    Refusal, Reply, SessionId, Totals,
};
use cached::Recalled;
use deadlock::ToCheck;
use document_index::Documents;
use expiry::DeadlineOf;
use lock::Lock;
use owners::Owners;
use record::DirtyKeys;
use state::{FinishedLease, Globals, Session, Tombstone, Usage};

/// What an entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// One reply for each renewal, in order.
    pub renewals: Vec<Reply>,
    /// One reply for each command, in order.
    pub commands: Vec<Reply>,
    /// In the order in which they happened. Shared: they are kept for subscribers, in one piece for each entry.
    pub events: Arc<[Event]>,
}

/// All locks, sessions and queues. Equal logs give equal machines.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    globals: Globals,
    /// Boxed, as sessions are: a tree whose keys come in order is half empty.
    locks: BTreeMap<LockKey, Box<Lock>>,
    sessions: BTreeMap<SessionId, Box<Session>>,
    tombstones: BTreeMap<SessionId, Tombstone>,
    /// Takes that are over.
    finished_leases: BTreeMap<(LockKey, LeaseRequestId), FinishedLease>,
    /// Documents of free locks, and processes.
    documents: Documents,
    /// What nodes said of themselves, by id.
    nodes: BTreeMap<u64, Announcement>,
    /// Everything with an end, in order; derived.
    deadlines: BTreeSet<(LogTime, DeadlineOf)>,
    /// Sessions and tombstones by their secret; derived.
    handles: BTreeMap<(Namespace, Handle), SessionId>,
    /// Derived.
    usage: BTreeMap<Namespace, Usage>,
    /// Derived.
    totals: Totals,
    /// The same on every node; not part of the state.
    quotas: Quotas,
    /// Locks for which a set waits; derived.
    set_locks: BTreeSet<LockKey>,
    /// Sessions with several requests that wait or hold: only they may pass waiting sets. Derived.
    sessions_with_several: BTreeSet<(Namespace, SessionId)>,
    /// Named owners by what they hold and wait for; derived.
    owners: Owners,
    /// Owners to check for a deadlock before the present command ends.
    to_check: ToCheck,
    /// How many steps the checks for deadlocks in this entry may still take.
    deadlock_steps_left: usize,
    /// Owners that were not checked since this machine began, because an entry had no steps left.
    deadlock_checks_skipped: u64,
    /// Records touched since they were last taken.
    dirty: DirtyKeys,
    /// What happened to the holders of locks.
    history: History,
    /// Events of the entry that is being applied.
    events: Vec<Event>,
    /// Recalled holds; derived.
    recalled: Recalled,
    /// Locks whose cached hold may have to be recalled when the present command is over.
    to_recall: BTreeSet<LockKey>,
    /// Queues that must be looked at before the present command is over, each from this place on.
    queues_to_check: BTreeMap<LockKey, u64>,
    /// The sweep of this entry stopped at its bound and left something that is due.
    sweep_incomplete: bool,
}

impl Machine {
    /// An empty machine, before its first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Log index of the newest applied entry.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.globals.applied
    }

    /// Position of the newest event; the beginning where nothing ever happened. A snapshot carries it. A subscriber that has every
    /// event up to it knows that none is missing.
    #[must_use]
    pub fn newest_event(&self) -> Position {
        self.globals.newest_event
    }

    /// Log time: the newest stamp.
    #[must_use]
    pub fn now(&self) -> LogTime {
        self.globals.now
    }

    /// The earliest end of anything; `None` while nothing has one.
    #[must_use]
    pub fn next_deadline(&self) -> Option<LogTime> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Whether something should have ended by now but the sweep's bound left it for the next entry.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let early = u64::from(faults::on(Fault::ExpiryOneEarly));
        self.next_deadline().is_some_and(|deadline| deadline < self.now().after_ms(early))
    }

    /// Refuses a handle that does not prove that session, and a namespace in which the session does not live. A session
    /// that has ended is not refused here: its end is the answer to the command.
    pub fn proves(&self, id: SessionId, handle: &Handle, namespace: &Namespace) -> Result<(), Refusal> {
        let Some(Session { record, .. }) = self.sessions.get(&id).map(|session| &**session) else { return Ok(()) };
        if record.handle != *handle {
            return Err(Refusal::WrongHandle);
        }
        self.lives_in(id, namespace)
    }

    /// Refuses a namespace in which that session does not live.
    fn lives_in(&self, id: SessionId, namespace: &Namespace) -> Result<(), Refusal> {
        match self.namespace_of(id).filter(|own| *own != namespace) {
            Some(own) => {
                let (namespace, asked) = (own.clone(), namespace.clone());
                Err(Refusal::OtherNamespace { session: id, namespace, asked })
            }
            None => Ok(()),
        }
    }

    /// Where that session lives, while it is open.
    #[must_use]
    pub fn namespace_of(&self, session: SessionId) -> Option<&Namespace> {
        self.sessions.get(&session).map(|session| &session.record.namespace)
    }

    /// Whether that session is open.
    #[must_use]
    pub fn lives(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The cluster's settings, once its first leader has set them.
    #[must_use]
    pub fn settings(&self) -> Option<ClusterSettings> {
        self.globals.settings
    }

    /// The cluster's id, once its first leader has fixed it.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u128> {
        self.globals.cluster_id
    }

    /// How many owners were not checked for a deadlock since this machine began: their entry took too many steps.
    #[must_use]
    pub fn deadlock_checks_skipped(&self) -> u64 {
        self.deadlock_checks_skipped
    }

    /// Sizes of the whole state.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals { grants: self.globals.tokens, ..self.totals }
    }

    /// Shortest TTL of a session, and longest TTL and lease, in milliseconds.
    #[must_use]
    pub fn ttl_ms_bounds(&self) -> (u64, u64) {
        self.globals.settings.map_or((limits::LEASE_MS_MIN, limits::TTL_MS_MAX_DEFAULT), |settings| {
            (settings.ttl_ms_min, self.globals.ttl_ms_max.unwrap_or(settings.ttl_ms_max))
        })
    }

    /// How much of its quotas a namespace has used.
    fn used(&self, namespace: &Namespace) -> Usage {
        self.usage.get(namespace).copied().unwrap_or_default()
    }

    fn mark_dirty(&mut self, key: RecordKey) {
        self.dirty.touched(key);
    }

    fn usage_of(&mut self, namespace: &Namespace) -> &mut Usage {
        self.usage.entry(namespace.clone()).or_default()
    }

    /// Counts one thing less. A namespace that uses nothing any more is forgotten.
    fn used_less(&mut self, namespace: &Namespace, less: impl FnOnce(&mut Usage)) {
        let Some(usage) = self.usage.get_mut(namespace) else { return };
        less(usage);
        if *usage == Usage::default() {
            self.usage.remove(namespace);
        }
    }
}

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A search looked at one more waiter, claim, lock or owner.
fn looked_at() {
    #[cfg(test)]
    LOOKED_AT.with(|count| count.set(count.get() + 1));
}

/// How much was looked at meanwhile, on this thread.
#[cfg(test)]
fn count_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LOOKED_AT.with(std::cell::Cell::get);
    let result = run();
    (result, LOOKED_AT.with(std::cell::Cell::get) - before)
}
