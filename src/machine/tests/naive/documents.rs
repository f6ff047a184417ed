//! Changes on condition that something still is as the caller saw it.

use super::*;

/// The document fields of a hold that is a document.
#[derive(Clone)]
pub(super) struct Mark {
    lock: LockKey,
    ts: DocumentId,
    term: Option<u64>,
    prepared: bool,
}

/// A document: name, state, `ts`, process, term, token.
pub(in crate::machine::tests) type Shown = (LockKey, i32, Option<DocumentId>, String, Option<u64>, FencingToken);

impl Naive {
    pub(super) fn document(&mut self, principal: &Principal, command: &DocumentCommand) -> Outcome {
        let now = self.now;
        match command {
            DocumentCommand::Grab(grab) => self.grab(principal, grab),
            DocumentCommand::Unlock { namespace, ts, name } => self.unlock(namespace, *ts, name.as_ref()),
            DocumentCommand::UnlockAll { namespace, process, term } => {
                let meant = |hold: &Hold, mark: &Mark| {
                    let of_term = term.is_none_or(|term| mark.term.is_some_and(|of| of <= term));
                    hold.ask.lock.namespace == *namespace && *hold.ask.metadata.process == *process.as_str() && of_term
                };
                self.free_all(meant)
            }
            DocumentCommand::Ping { namespace, process } => {
                self.pings.retain(|(of, known, _)| (of, known) != (namespace, process));
                self.pings.push((namespace.clone(), process.clone(), LogTime(now.0 + FOUR_DAYS_MS)));
                Outcome::Done
            }
            DocumentCommand::StopPing { namespace, process } => {
                self.pings.retain(|(of, known, _)| (of, known) != (namespace, process));
                Outcome::Done
            }
            DocumentCommand::RemoveExpired { lock, token, deadline } => {
                let found = |hold: &&Hold| hold.ask.lock == *lock && hold.token == *token;
                let Some(hold) = self.holds.iter().find(found) else { return Outcome::Done };
                let (lock, view) = (lock.clone(), self.view(hold));
                Outcome::Refused(if view.deadline == Some(*deadline) {
                    Refusal::Held { lock, holder: Some(Box::new(view)), closed: None }
                } else {
                    let value = self.value(&lock);
                    Refusal::Changed { lock, value }
                })
            }
            DocumentCommand::SwapValue { lock, handle, seen, value } => {
                let takes = &self.takes;
                let proven =
                    |id: LeaseRequestId| takes.iter().any(|t| t.id == id && t.lock == *lock && t.handle == *handle);
                let mine = |hold: &&mut Hold| match hold.ask.claim {
                    Claim::Lease(id) => hold.ask.lock == *lock && proven(id),
                    Claim::Request(_) => false,
                };
                match self.holds.iter_mut().find(mine) {
                    None => self.not_held(lock, |_| false),
                    Some(hold) if hold.ask.extras.value != *seen => {
                        let value = hold.ask.extras.value.clone();
                        Outcome::Refused(Refusal::Changed { lock: lock.clone(), value })
                    }
                    Some(hold) => {
                        hold.ask.extras.value.clone_from(value);
                        Outcome::Done
                    }
                }
            }
            DocumentCommand::Confirm { lock, ts } => self.confirm(lock, *ts),
        }
    }

    fn value(&self, lock: &LockKey) -> Option<LockValue> {
        let mut holds: Vec<_> = self.holds.iter().filter(|hold| hold.ask.lock == *lock).collect();
        holds.sort_by_key(|hold| hold.token);
        holds.into_iter().find_map(|hold| hold.ask.extras.value.clone())
    }

    fn mark(&self, hold: &Hold) -> Option<&Mark> {
        let is = |mark: &&Mark| mark.lock == hold.ask.lock && hold.ask.claim == Claim::Lease(mark.ts.take_id());
        self.marks.iter().find(is)
    }

    fn grab(&mut self, principal: &Principal, grab: &Grab) -> Outcome {
        let lock = grab.lock.clone();
        let id = grab.ts.take_id();
        if let Some(known) = self.takes.iter().find(|known| known.id == id && known.lock == lock) {
            if let Some(Command::Document(DocumentCommand::Grab(first))) = &known.payload
                && first.metadata.process != grab.metadata.process
            {
                return Outcome::Refused(Refusal::RequestReused { claim: Claim::Lease(id) });
            }
            let over = known.over.as_ref().map(|(outcome, _)| outcome.clone());
            let standing = || self.standing(Some(&lock), Claim::Lease(id)).map(|(_, outcome)| outcome);
            return over.or_else(standing).expect("it holds or is over");
        }
        if let Some(seen) = grab.seen {
            let held = self.holds.iter().position(|hold| hold.ask.lock == lock);
            match held {
                Some(at) if self.mark(&self.holds[at]).is_some_and(|mark| mark.ts == seen) => {
                    self.end_hold(at, EndReason::Overtaken, None);
                }
                Some(_) => {
                    return self.held_or_closed(&lock, Mode::Exclusive, self.holder(&lock, |_| false));
                }
                None if self.free.iter().any(|free| free.0 == lock) => {}
                None => return Outcome::Refused(Refusal::NotHeld { lock }),
            }
        }
        let payload = Command::Document(DocumentCommand::Grab(grab.clone()));
        let ask = Ask {
            lock: lock.clone(),
            claim: Claim::Lease(id),
            owner: None,
            mode: Mode::Exclusive,
            limit: None,
            metadata: grab.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            handle: None,
            lease_ms: None,
            extras: Extras::default(),
            set: false,
        };
        if let Err(refused) = self.judge(&ask, Patience::Try) {
            return refused;
        }
        if self.is_first_behind_cached(&lock) {
            return self.held_or_closed(&lock, Mode::Exclusive, self.holder(&lock, |_| false));
        }
        self.takes.push(Taken { lock: lock.clone(), id, handle: grab.ts.handle(), payload: Some(payload), over: None });
        self.marks.push(Mark { lock, ts: grab.ts, term: grab.term, prepared: grab.prepare });
        Outcome::Granted(self.grant(ask))
    }

    fn confirm(&mut self, lock: &LockKey, ts: DocumentId) -> Outcome {
        let Some(known) = self.takes.iter().find(|take| take.id == ts.take_id() && take.lock == *lock) else {
            return self.not_held(lock, |_| false);
        };
        let over = known.over.as_ref().map(|(outcome, _)| outcome.clone());
        let standing = || self.standing(Some(lock), Claim::Lease(ts.take_id())).map(|(_, outcome)| outcome);
        let outcome = over.or_else(standing).expect("it holds or is over");
        self.marks.iter_mut().filter(|mark| mark.lock == *lock && mark.ts == ts).for_each(|mark| mark.prepared = false);
        outcome
    }

    fn unlock(&mut self, namespace: &Namespace, ts: DocumentId, name: Option<&LockName>) -> Outcome {
        let here = |lock: &LockKey| lock.namespace == *namespace && name.is_none_or(|name| lock.name == *name);
        if let Some(name) = name {
            let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
            if !self.takes.iter().any(|take| take.id == ts.take_id() && take.lock == lock) {
                let over = Some((Outcome::Withdrawn, LogTime(self.now.0 + TEN_MINUTES_MS)));
                self.takes.push(Taken { lock, id: ts.take_id(), handle: ts.handle(), payload: None, over });
            }
        }
        self.free_all(|hold, mark| mark.ts == ts && here(&hold.ask.lock))
    }

    /// Frees these documents in the order of their names.
    fn free_all(&mut self, meant: impl Fn(&Hold, &Mark) -> bool) -> Outcome {
        let marked = |hold: &&Hold| self.mark(hold).is_some_and(|mark| meant(hold, mark));
        let mut locks: Vec<LockKey> = self.holds.iter().filter(marked).map(|hold| hold.ask.lock.clone()).collect();
        locks.sort();
        for lock in &locks {
            let at = self.holds.iter().position(|hold| hold.ask.lock == *lock).expect("just seen");
            self.end_hold(at, EndReason::Released, None);
        }
        Outcome::Freed { locks: locks.len() as u64 }
    }

    /// Keeps a free document after the end of a hold that was a document.
    pub(super) fn leave_document(&mut self, hold: &Hold) {
        let Some(mark) = self.mark(hold).cloned() else { return };
        self.marks.retain(|known| (&known.lock, known.ts) != (&mark.lock, mark.ts));
        let process = hold.ask.metadata.process.to_string();
        self.free.push((mark.lock, 0, Some(mark.ts), process, mark.term, hold.token));
    }

    /// Removes processes without locks after their time.
    pub(super) fn forget_processes(&mut self) {
        let now = self.now;
        for (namespace, process, kept) in std::mem::take(&mut self.pings) {
            let has =
                |hold: &Hold| hold.ask.lock.namespace == namespace && *hold.ask.metadata.process == *process.as_str();
            let busy = self.holds.iter().any(|hold| has(hold) && self.mark(hold).is_some());
            if now <= kept {
                self.pings.push((namespace, process, kept));
            } else if busy {
                self.pings.push((namespace, process, LogTime(now.0 + FOUR_DAYS_MS)));
            }
        }
    }

    /// Every document, in the order of names. The `ts` of a native hold is left out.
    pub(in crate::machine::tests) fn documents(&self) -> Vec<Shown> {
        let mut shown = self.free.clone();
        for hold in &self.holds {
            let first =
                self.holds.iter().filter(|other| other.ask.lock == hold.ask.lock).map(|other| other.token).min();
            if first == Some(hold.token) {
                let mark = self.mark(hold);
                let process = mark.map(|_| hold.ask.metadata.process.to_string()).unwrap_or_default();
                let (ts, term) = (mark.map(|mark| mark.ts), mark.and_then(|mark| mark.term));
                let state = if mark.is_some_and(|mark| mark.prepared) { 1 } else { 2 };
                shown.push((hold.ask.lock.clone(), state, ts, process, term, hold.token));
            }
        }
        shown.sort();
        shown
    }

    /// Every process that gave signs of life.
    pub(in crate::machine::tests) fn processes(&self) -> Vec<(Namespace, String)> {
        let mut known: Vec<_> = self.pings.iter().map(|(of, process, _)| (of.clone(), process.to_string())).collect();
        known.sort();
        known
    }
}
