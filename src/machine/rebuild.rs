//! A machine from its records: what they say, and everything that is derived from them. `check` compares what every change
//! kept up to date with what is derived here.
//!
//! A backup's records become the beginning of a new cluster. The new cluster does not know what was granted after the backup was
//! made, and clients may still believe in it. So every session ends, tokens and session ids go on above all that came before, and
//! nothing is granted for the longest time that an unknown grant can last.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::expiry::DeadlineOf;
use super::lock::Lock;
use super::state::{self, ClaimState, Request, Session, Usage};
use super::{CorruptRecords, Machine, Record, RecordKey};
use crate::faults::{self, Fault};
use crate::history::History;
use crate::limits;
use crate::model::{
    Claim, EndReason, Handle, Kind, LockKey, LogTime, Namespace, Refusal, RequestId, Restoring, SessionId, Totals,
};

impl Machine {
    /// The machine that these records describe, in whatever order they come. Everything derived is built from
    /// them; nothing is dirty. Refuses records that contradict each other.
    pub fn from_records(records: impl IntoIterator<Item = (RecordKey, Record)>) -> Result<Self, CorruptRecords> {
        let mut machine = Machine::new();
        let mut limits = Vec::new();
        let mut finished = Vec::new();
        let mut segments = BTreeMap::new();
        for (key, record) in records {
            match (key, record) {
                (RecordKey::Globals, Record::Globals(globals)) => machine.globals = globals,
                (RecordKey::Holder(..), Record::Holder(_)) if faults::on(Fault::ForgottenHolders) => {}
                (RecordKey::Semaphore(lock), Record::Semaphore { limit, kept }) => limits.push((lock, limit, kept)),
                (RecordKey::Session(id), Record::Session(record)) => {
                    machine.sessions.insert(id, Box::new(Session::new(record)));
                }
                (RecordKey::Finished(..), Record::Finished(_)) if faults::on(Fault::RequestMemoryLost) => {}
                (RecordKey::Finished(id, number), Record::Finished(done)) => finished.push((id, number, done)),
                (RecordKey::Tombstone(id), Record::Tombstone(tombstone)) => {
                    machine.tombstones.insert(id, tombstone);
                }
                (RecordKey::Holder(lock, token), Record::Holder(holder)) => {
                    machine.lock_of(&lock, &holder.request).holders.insert(token, Box::new(holder));
                }
                (RecordKey::Waiter(lock, sequence), Record::Waiter(waiter)) => {
                    machine.lock_of(&lock, &waiter.request).queue.restore(sequence, waiter);
                }
                (RecordKey::Delay(lock, token), Record::Delay(delayed)) => {
                    machine.lock_of(&lock, &delayed.holder.request).delays.insert(token, delayed);
                }
                (RecordKey::FinishedLease(lock, id), Record::FinishedLease(take)) => {
                    machine.finished_leases.insert((lock, id), take);
                }
                (RecordKey::Node(id), Record::Node(told)) => {
                    machine.nodes.insert(id, told);
                }
                (RecordKey::History(namespace, number), Record::History(segment)) => {
                    segments.insert((namespace, number), segment);
                }
                (RecordKey::Document(lock), Record::Document(free)) => {
                    machine.documents.free.insert(lock, free);
                }
                (RecordKey::Process(namespace, process), Record::Process(record)) => {
                    machine.documents.pings.insert((namespace, process), record);
                }
                (key, _) => return Err(CorruptRecords(format!("{key:?} has another kind of content"))),
            }
        }
        for (lock, limit, kept) in limits {
            if !kept && !machine.locks.contains_key(&lock) {
                return Err(CorruptRecords(format!("semaphore {lock:?} has no holder and no waiter")));
            }
            let found = machine.lock_entry(&lock, Kind::Semaphore);
            found.limit = Some(limit);
            found.limit_kept = kept;
        }
        for (id, number, done) in finished {
            let Some(session) = machine.sessions.get_mut(&id) else {
                return Err(CorruptRecords(format!("finished request {id}#{number} has no session")));
            };
            session.finished.insert(number, done);
        }
        machine.history = History::restored(segments).map_err(CorruptRecords)?;
        if faults::on(Fault::TokensOfThisProcess) {
            machine.globals.tokens = 0;
        }
        if faults::on(Fault::LogTimeOfThisProcess) {
            machine.globals.now = crate::model::LogTime(0);
        }
        machine.derive()?;
        Ok(machine)
    }

    fn lock_of(&mut self, key: &LockKey, request: &Request) -> &mut Lock {
        self.lock_entry(key, state::kind_of(request.mode))
    }

    fn lock_entry(&mut self, key: &LockKey, kind: Kind) -> &mut Lock {
        self.locks.entry(key.clone()).or_insert_with(|| Box::new(Lock::new(kind, None)))
    }

    /// Builds everything that is derived from the records.
    fn derive(&mut self) -> Result<(), CorruptRecords> {
        let mut claims = Vec::new();
        for (key, lock) in &mut self.locks {
            for holder in lock.holders.values_mut() {
                let session = holder.request.claim.session().and_then(|id| self.sessions.get(&id));
                if let Some(shared) = session.and_then(|session| session.shared_metadata(&holder.request.metadata)) {
                    holder.request.metadata = shared;
                }
            }
            for (token, holder) in &lock.holders {
                lock.permits_held += state::permits_of(holder.request.mode);
                claims.push((key.clone(), holder.request.claim, ClaimState::Holding(*token)));
                for later in holder.extras.iter().flat_map(|extras| extras.reentries.iter().chain(&extras.upgrade)) {
                    let Some(session) = holder.request.claim.session() else { continue };
                    let claim = Claim::Request(RequestId { session, number: later.number });
                    claims.push((key.clone(), claim, ClaimState::Holding(*token)));
                }
            }
            lock.permits_reserved =
                lock.delays.values().map(|delayed| state::permits_of(delayed.holder.request.mode)).sum();
            lock.queue.derive_index();
            for (sequence, waiter) in lock.queue.iter() {
                claims.push((key.clone(), waiter.request.claim, ClaimState::Waiting(*sequence)));
            }
        }
        for (lock, claim, state) in claims {
            match claim {
                Claim::Request(request) => {
                    let Some(session) = self.sessions.get_mut(&request.session) else {
                        return Err(CorruptRecords(format!("request {request} has no session")));
                    };
                    session.add_claim(request.number, &lock, state);
                }
                Claim::Lease(take) => {
                    let corrupt = |what| Err(CorruptRecords(format!("take {take:?} of {lock:?} {what}")));
                    if self.finished_leases.contains_key(&(lock.clone(), take)) {
                        return corrupt("is live and finished");
                    }
                    let Some(found) = self.locks.get_mut(&lock) else { continue };
                    let Some(handle) = found.handle_at(state) else { return corrupt("has no handle") };
                    if found.leases.insert(take, state).is_some() || found.handles.insert(handle, take).is_some() {
                        return corrupt("is there twice");
                    }
                }
            }
        }
        self.owners = self.derived_owners();
        self.set_locks = self.derived_set_locks();
        self.sessions_with_several = self.derived_sessions_with_several();
        self.documents = self.derived_documents();
        self.recalled = self.derived_recalled();
        self.deadlines = self.derived_deadlines();
        self.usage = self.derived_usage();
        self.handles = self.derived_handles();
        self.totals = self.derived_totals();
        // Only the sweep's bound leaves something due in a state that was stored.
        self.sweep_incomplete = self.is_due();
        Ok(())
    }

    pub(super) fn derived_deadlines(&self) -> BTreeSet<(LogTime, DeadlineOf)> {
        let mut due = BTreeSet::new();
        for (id, session) in &self.sessions {
            due.insert((session.record.deadline, DeadlineOf::Session(*id)));
        }
        for (id, tombstone) in &self.tombstones {
            due.insert((tombstone.deadline, DeadlineOf::Tombstone(*id)));
        }
        for ((lock, id), take) in &self.finished_leases {
            due.insert((take.forget, DeadlineOf::FinishedLease(lock.clone(), *id)));
        }
        for (key, lock) in &self.locks {
            for (token, holder) in &lock.holders {
                due.extend(holder.own_ends(key, *token));
            }
            for (token, delayed) in &lock.delays {
                due.insert((delayed.until, DeadlineOf::Delay(key.clone(), *token)));
            }
            for (sequence, waiter) in lock.queue.iter() {
                if let Some(deadline) = waiter.deadline {
                    due.insert((deadline, DeadlineOf::Wait(key.clone(), *sequence)));
                }
            }
        }
        for ((namespace, process), record) in &self.documents.pings {
            due.insert((record.forget_after, DeadlineOf::Process(namespace.clone(), process.clone())));
        }
        due.extend(self.globals.closed_until.map(|until| (until, DeadlineOf::Opening)));
        due.extend(self.globals.unlocking.first().map(|unlocking| (unlocking.since, DeadlineOf::Unlocking)));
        due
    }

    pub(super) fn derived_usage(&self) -> BTreeMap<Namespace, Usage> {
        let mut usage: BTreeMap<Namespace, Usage> = BTreeMap::new();
        for session in self.sessions.values() {
            usage.entry(session.record.namespace.clone()).or_default().sessions += 1;
        }
        for tombstone in self.tombstones.values() {
            usage.entry(tombstone.namespace.clone()).or_default().sessions += 1;
        }
        for (key, lock) in &self.locks {
            let namespace = usage.entry(key.namespace.clone()).or_default();
            namespace.locks += 1;
            namespace.waiters += lock.queue.len() as u64;
            namespace.takes += lock.leases.len() as u64;
        }
        for (lock, _) in self.finished_leases.keys() {
            usage.entry(lock.namespace.clone()).or_default().takes += 1;
        }
        for (namespace, _) in self.documents.pings.keys() {
            usage.entry(namespace.clone()).or_default().processes += 1;
        }
        usage
    }

    pub(super) fn derived_handles(&self) -> BTreeMap<(Namespace, Handle), SessionId> {
        let live = self.sessions.iter().map(|(id, s)| (*id, &s.record.namespace, &s.record.handle));
        let ended = self.tombstones.iter().map(|(id, t)| (*id, &t.namespace, &t.handle));
        live.chain(ended).map(|(id, namespace, handle)| ((namespace.clone(), handle.clone()), id)).collect()
    }

    pub(super) fn derived_totals(&self) -> Totals {
        Totals {
            sessions: self.sessions.len() as u64,
            locks: self.locks.len() as u64,
            holders: self.locks.values().map(|lock| lock.holders.len() as u64).sum(),
            waiters: self.locks.values().map(|lock| lock.queue.len() as u64).sum(),
            grants: 0,
        }
    }
}

impl Machine {
    /// Turns the state of a backup into the beginning of a new cluster's, as of the log position after its last.
    ///
    /// - Every session has ended; leases and documents, which name no session, are as they were.
    /// - No token or session id that follows was ever handed out: the epoch is larger, and so is the counter's start.
    /// - The cluster has the id that was drawn for it. No node is known, and no settings are: the first leader sets its own.
    pub fn restore(&mut self, restoring: Restoring) {
        let ttl_ms_max = self.ttl_ms_bounds().1.max(self.globals.ttl_ms_max_ever).max(restoring.ttl_ms_max);
        self.globals.applied += 1;
        self.globals.wall = self.globals.wall.max(restoring.wall);
        self.globals.epoch = restoring.epoch_after(self.globals.epoch);
        self.globals.tokens = restoring.counter();
        self.globals.sessions = restoring.counter();
        self.close(if restoring.at_once { 0 } else { ttl_ms_max });
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        for id in sessions {
            self.end_session(id, EndReason::Broken);
        }
        self.grant_ready();
        self.globals.settings = None;
        self.globals.cluster_id = Some(restoring.cluster_id);
        let nodes: Vec<_> = std::mem::take(&mut self.nodes).into_keys().collect();
        nodes.into_iter().for_each(|node| self.mark_dirty(RecordKey::Node(node)));
        self.mark_dirty(RecordKey::Globals);
        self.events.clear();
    }

    /// The cluster epoch of new tokens.
    #[must_use]
    pub fn epoch(&self) -> u16 {
        self.globals.epoch
    }

    /// For how long nothing is granted, in milliseconds; 0 where grants come.
    #[must_use]
    pub fn closed_ms(&self) -> u64 {
        self.globals.closed_until.map_or(0, |until| until.ms_since(self.globals.now))
    }

    /// Grants nothing for so long.
    fn close(&mut self, ms: u64) {
        self.move_deadline(self.globals.closed_until, None, DeadlineOf::Opening);
        self.globals.closed_until = (ms != 0).then(|| self.globals.now.after_ms(ms));
        self.globals.opening = None;
        self.move_deadline(None, self.globals.closed_until, DeadlineOf::Opening);
    }

    /// The time is over: looks at a bounded number of queues, and goes on in the same or the next sweep. Returns how many.
    pub(super) fn open_again(&mut self) -> usize {
        let max = limits::QUEUES_OPENED_AT_ONCE_MAX;
        let from = self.globals.opening.take().map_or(Bound::Unbounded, Bound::Included);
        let locks = self.locks.range((from, Bound::Unbounded)).take(max + 1);
        let mut keys: Vec<LockKey> = locks.map(|(key, _)| key.clone()).collect();
        let next = if keys.len() <= max { None } else { keys.pop() };
        keys.iter().for_each(|key| self.check_queue(key, 0));
        match next {
            Some(_) => self.globals.opening = next,
            None => self.close(0),
        }
        keys.len().max(1)
    }

    /// Whether the time without grants is over, but this lock's queue was not looked at yet.
    pub(super) fn is_yet_to_open(&self, key: &LockKey) -> bool {
        let over = self.globals.closed_until.is_some() && !self.is_closed();
        over && self.globals.opening.as_ref().is_none_or(|next| next <= key)
    }

    /// Whether nothing may be granted at all.
    pub(super) fn is_closed(&self) -> bool {
        self.globals.closed_until.is_some_and(|until| self.globals.now <= until)
    }

    /// Refuses while nothing may be granted.
    pub(super) fn open_for_grants(&self) -> Result<(), Refusal> {
        if self.is_closed() { Err(Refusal::Closed { left_ms: self.closed_ms() }) } else { Ok(()) }
    }
}

const _: () = assert!(limits::TTL_MS_MAX_DEFAULT <= limits::TTL_MS_MAX, "what a restore waits out is bounded");
