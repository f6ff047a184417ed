//! Changes on condition that something is still as the caller saw it, for the lock protocols of other systems.
//!
//! A lock that was taken as a document is a take without a lease, and its holder's record is the document. After the
//! hold ends, the document remains as a free one until the name is held again or there are too many free documents.

use std::sync::Arc;

use super::Machine;
use super::acquire::Admission;
use super::lease::KnownTake;
use super::requests::of_grab;
use crate::limits;
use crate::model::{
    Claim, DocumentCommand, DocumentId, EndReason, Fairness, FencingToken, Grab, Grant, Handle, Kind, LockKey,
    LockName, LockValue, LogTime, Mode, Namespace, Outcome, Patience, Principal, ProcessId, QuotaKind, Refusal,
    WallTime,
};
use crate::state::{
    Change, DeadlineOf, DocumentMark, FreeDocument, Holder, ProcessRecord, RecordKey, Request, WhichHeld,
};

impl Machine {
    pub(super) fn document(
        &mut self,
        principal: &Principal,
        command: &DocumentCommand,
        since: Option<LogTime>,
    ) -> Result<Outcome, Refusal> {
        match command {
            DocumentCommand::Grab(grab) => self.grab(principal, grab, since),
            DocumentCommand::Unlock { namespace, ts, name } => self.unlock(namespace, *ts, name.as_ref(), since),
            DocumentCommand::UnlockAll { namespace, process, term } => {
                self.too_late(since)?;
                self.unlock_many(namespace, WhichHeld::Process(process.clone(), *term))
            }
            DocumentCommand::Ping { namespace, process } => self.ping(namespace, process),
            DocumentCommand::StopPing { namespace, process } => {
                self.forget_process(namespace, process);
                Ok(Outcome::Done)
            }
            DocumentCommand::RemoveExpired { lock, token, deadline } => self.remove_expired(lock, *token, *deadline),
            DocumentCommand::SwapValue { lock, handle, seen, value } => {
                self.swap_value(lock, handle, seen.as_ref(), value.as_ref())
            }
            DocumentCommand::Confirm { lock, ts } => self.confirm(lock, *ts),
        }
    }

    fn grab(&mut self, principal: &Principal, grab: &Grab, since: Option<LogTime>) -> Result<Outcome, Refusal> {
        let key = &grab.lock;
        self.expire_due_at(key);
        let fingerprint = of_grab(grab);
        if let Some(known) = self.known_take(key, grab.ts.take_id()) {
            if known.asks_otherwise(fingerprint) {
                return Err(Refusal::RequestReused { claim: Claim::Lease(grab.ts.take_id()) });
            }
            return Ok(self.take_outcome(key, known));
        }
        self.too_late(since)?;
        self.room_for_a_take(key)?;
        self.open_for_grants()?;
        if let Some(seen) = grab.seen {
            self.overtake(key, seen)?;
        }
        match self.admission(key, Mode::Exclusive.into(), Patience::Try, Fairness::Fair, None)? {
            Admission::Grant | Admission::Enter(_) => {}
            // A grab never waits. It returns the document at once or is refused.
            Admission::Queue => return Err(self.held_or_kept_closed(key)),
        }
        let (take, handle) = (grab.ts.take_id(), grab.ts.handle());
        self.state.lock_or_new(key, Kind::Lock, None).handles.insert(handle, take);
        self.state.index.count(&key.namespace, |usage| &mut usage.takes, Change::Came);
        let mark = DocumentMark { ts: grab.ts, term: grab.term, prepared: grab.prepare };
        let request = Request {
            claim: Claim::Lease(take),
            owner: None,
            mode: Mode::Exclusive,
            principal: principal.clone(),
            metadata: Arc::new(grab.metadata.clone()),
            fingerprint,
            extras: None,
        };
        let mut holder = Holder::new(request, &self.state.globals);
        holder.extras_mut().document = Some(mark);
        let token = self.hold(key, holder, self.at_once(Fairness::Fair));
        Ok(Outcome::Granted(Grant { token, deadline: None, ends: None, waited_ms: 0 }))
    }

    fn confirm(&mut self, key: &LockKey, ts: DocumentId) -> Result<Outcome, Refusal> {
        self.expire_due_at(key);
        let known = self.known_take(key, ts.take_id()).ok_or_else(|| self.not_proven(key))?;
        let outcome = self.take_outcome(key, known);
        let KnownTake::Holds(token, _) = known else { return Ok(outcome) };
        let holder = self.state.holder_mut(key, token);
        let mark = holder.and_then(|holder| holder.extras.as_mut()).and_then(|extras| extras.document.as_mut());
        if let Some(mark) = mark.filter(|mark| mark.prepared) {
            mark.prepared = false;
            self.state.mark(RecordKey::Holder(key.clone(), token));
        }
        Ok(outcome)
    }

    /// Ends the hold whose document the caller saw. If the name is free, its document may differ from the one that the
    /// caller saw.
    fn overtake(&mut self, key: &LockKey, seen: DocumentId) -> Result<(), Refusal> {
        let held = self.state.lock(key).and_then(|lock| lock.holders.first_key_value());
        let held = held.map(|(token, holder)| (*token, holder.document().map(|mark| mark.ts)));
        match held {
            Some((token, Some(ts))) if ts == seen => {
                self.end_hold(key, token, EndReason::Overtaken, None);
                Ok(())
            }
            Some(_) => Err(self.held_or_kept_closed(key)),
            None if self.state.documents.contains_key(key) => Ok(()),
            None => Err(Refusal::NotHeld { lock: key.clone() }),
        }
    }

    fn unlock(
        &mut self,
        namespace: &Namespace,
        ts: DocumentId,
        name: Option<&LockName>,
        since: Option<LogTime>,
    ) -> Result<Outcome, Refusal> {
        let Some(name) = name else {
            return self.unlock_many(namespace, WhichHeld::Stamp(ts));
        };
        let key = LockKey { namespace: namespace.clone(), name: name.clone() };
        self.expire_due_at(&key);
        match self.known_take(&key, ts.take_id()) {
            Some(KnownTake::Holds(token, _)) => {
                self.end_hold(&key, token, EndReason::Released, None);
                return Ok(Outcome::Freed { locks: 1 });
            }
            Some(KnownTake::Waits(..) | KnownTake::Finished(_)) => {}
            None if self.too_late(since).is_err() => {}
            None => {
                self.room_for_a_take(&key)?;
                self.note_unseen(&key, ts.take_id(), ts.handle(), None, Outcome::Withdrawn);
            }
        }
        Ok(Outcome::Freed { locks: 0 })
    }

    fn ping(&mut self, namespace: &Namespace, process: &ProcessId) -> Result<Outcome, Refusal> {
        let key = (namespace.clone(), process.clone());
        if !self.state.processes.contains_key(&key) {
            self.quotas.one_more(QuotaKind::Processes, self.state.used(namespace).processes)?;
            self.state.index.count(namespace, |usage| &mut usage.processes, Change::Came);
        }
        self.keep_process(key, Some(self.state.globals.wall));
        Ok(Outcome::Done)
    }

    fn remove_expired(&mut self, key: &LockKey, token: FencingToken, deadline: LogTime) -> Result<Outcome, Refusal> {
        self.expire_due_at(key);
        let Some(view) = self.view_of(key, token) else { return Ok(Outcome::Done) };
        Err(if view.deadline == Some(deadline) {
            Refusal::Held { lock: key.clone(), holder: Some(Box::new(view)), closed: None }
        } else {
            Refusal::Changed { lock: key.clone(), value: self.value_of(key) }
        })
    }

    fn swap_value(
        &mut self,
        key: &LockKey,
        handle: &Handle,
        seen: Option<&LockValue>,
        value: Option<&LockValue>,
    ) -> Result<Outcome, Refusal> {
        self.expire_due_at(key);
        let token = self.proven_hold(key, handle).ok_or_else(|| self.not_proven(key))?;
        let now = self.state.holder(key, token).and_then(|holder| holder.request.choices().value.as_ref());
        if now != seen {
            return Err(Refusal::Changed { lock: key.clone(), value: now.cloned() });
        }
        self.put_value(key, token, value);
        Ok(Outcome::Done)
    }

    /// Keeps the document of an ended hold as a free one. If there are too many, the oldest is forgotten.
    pub(super) fn document_freed(&mut self, key: &LockKey, token: FencingToken, holder: &Holder) {
        let Some(mark) = holder.document().map(|mark| DocumentMark { prepared: false, ..mark }) else { return };
        let free = FreeDocument { mark, metadata: Arc::clone(&holder.request.metadata), when: holder.when, token };
        self.state.insert_document(key, free);
        if let Some(oldest) = self.state.index.documents.oldest_beyond(&key.namespace, self.quotas.documents) {
            self.state.remove_document(&oldest);
        }
    }

    /// Handles the deadline of a process that was silent for days: removes it, or keeps it for the same time again if
    /// it has locks.
    pub(super) fn process_due(&mut self, namespace: &Namespace, process: &ProcessId) {
        if self.state.index.documents.held_by(namespace, process.as_str()).is_none() {
            self.forget_process(namespace, process);
            return;
        }
        self.keep_process((namespace.clone(), process.clone()), None);
    }

    /// Keeps the record of a process for days from now on. `pinged` is the time of a new sign of life.
    fn keep_process(&mut self, key: (Namespace, ProcessId), pinged: Option<WallTime>) {
        let known = self.state.processes.get(&key).map(|process| process.forget_after);
        let forget_after = self.state.globals.now.after_ms(limits::PROCESS_KEPT_MS);
        let record = self.state.processes.entry(key.clone()).or_default();
        *record = ProcessRecord { ping: pinged.unwrap_or(record.ping), forget_after };
        let (namespace, process) = key;
        self.state.mark(RecordKey::Process(namespace.clone(), process.clone()));
        self.state.index.move_deadline(known, Some(forget_after), DeadlineOf::Process(namespace, process));
    }

    fn forget_process(&mut self, namespace: &Namespace, process: &ProcessId) {
        let key = (namespace.clone(), process.clone());
        let Some(ping) = self.state.processes.remove(&key) else { return };
        self.state.index.count(namespace, |usage| &mut usage.processes, Change::Went);
        self.state.mark(RecordKey::Process(namespace.clone(), process.clone()));
        let (namespace, process) = key;
        self.state.index.move_deadline(Some(ping.forget_after), None, DeadlineOf::Process(namespace, process));
    }
}
