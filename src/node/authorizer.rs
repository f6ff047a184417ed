//! What each call needs, and whether its principal has it. A command, query, renewal or operation without a rule here
//! does not compile.
//!
//! *Own* is what the same principal made. What a caller without a principal made is proven by its handle alone, so that
//! `[auth]` can be switched on while clients work. The right to administer a name passes for own. Another's gets the
//! answer of an unknown one.

use std::sync::Arc;

use crate::auth::{Access, ClusterRight, Denied, On, Right};
use crate::machine::Machine;
use crate::model::{
    About, Acquire, Alter, Alteration, Claim, Command, DocumentCommand, DocumentId, EndReason, Explanation, Grab,
    LockKey, Manage, Managing, Namespace, Outcome, Parent, Principal, Query, QueryResult, Refusal, RenewalTarget,
    SessionId, WhichDocuments,
};
use crate::service::Operation;

/// The rules, and the principal of a call.
pub(super) struct Authorizer {
    pub(super) access: Arc<Access>,
    pub(super) principal: Principal,
}

/// What a check returns: an answer for a caller that must not learn more, or nothing if the call may be executed.
type Decision<T> = Result<Option<T>, Denied>;

impl Authorizer {
    pub(super) fn need(&self, right: Right, lock: &LockKey) -> Result<(), Denied> {
        self.access.need(&self.principal, right, &lock.namespace, On::Name(lock.name.as_str()))
    }

    fn need_all(&self, right: Right, namespace: &Namespace) -> Result<(), Denied> {
        self.access.need(&self.principal, right, namespace, On::All)
    }

    pub(super) fn has(&self, right: Right, lock: &LockKey) -> bool {
        self.access.has(&self.principal, right, &lock.namespace, On::Name(lock.name.as_str()))
    }

    /// Whether the caller may act on what this principal made at a lock, with the right handle.
    pub(super) fn owns(&self, lock: &LockKey, owner: &Principal) -> bool {
        *owner == self.principal || owner.is_anonymous() || self.has(Right::Admin, lock)
    }

    /// Whether the caller's principal made this, although the caller shows no handle. Callers that prove no identity
    /// have one principal, so for them it proves nothing.
    pub(super) fn made(&self, owner: &Principal) -> bool {
        *owner == self.principal && !owner.is_anonymous()
    }

    fn owns_session(&self, (namespace, owner): (&Namespace, &Principal)) -> bool {
        *owner == self.principal || owner.is_anonymous() || self.administers_all(namespace)
    }

    fn administers_all(&self, namespace: &Namespace) -> bool {
        self.access.has(&self.principal, Right::Admin, namespace, On::All)
    }

    /// Whether the caller may read all names in a namespace, and so its sessions.
    pub(super) fn reads_all(&self, namespace: &Namespace) -> bool {
        self.access.has(&self.principal, Right::Read, namespace, On::All)
    }

    /// Whether the caller may see what a session does, which its id alone does not prove.
    pub(super) fn sees(&self, (namespace, owner): (&Namespace, &Principal)) -> bool {
        *owner == self.principal || self.reads_all(namespace)
    }

    /// Refuses another's session like an unknown one.
    pub(super) fn session(&self, machine: &Machine, session: SessionId) -> Option<Refusal> {
        machine.session_principal(session).filter(|owner| !self.owns_session(*owner)).map(|_| unknown(session))
    }

    /// Decides about a command: returns the answer if it must not be executed.
    pub(super) fn command(&self, machine: &Machine, command: &Command) -> Decision<Outcome> {
        let session = |session| Ok(self.session(machine, session).map(Outcome::Refused));
        match command {
            Command::OpenSession(open) => {
                self.access.need(&self.principal, Right::Lock, &open.namespace, On::Any)?;
                let known = machine.session_of(&open.namespace, &open.handle);
                let another = known.filter(|session| self.session(machine, *session).is_some());
                Ok(another.map(|session| Outcome::Refused(Refusal::AlreadyOpen { session })))
            }
            Command::Attach(attach) => session(attach.session),
            Command::Disconnected { session: id, .. } | Command::CloseSession { session: id, .. } => session(*id),
            Command::Acquire(acquire) => self.acquire(machine, acquire),
            Command::Cancel { request } => session(request.session),
            Command::Release(release) => session(release.request.session),
            Command::TakeLease(take) => self.need(Right::Lock, &take.lock).map(|()| None),
            Command::CancelTake { lock, take, .. } => {
                let owner = machine.take_principal(lock, *take);
                if owner.is_some_and(|owner| self.owns(lock, owner)) {
                    return Ok(None);
                }
                // The cancel of an unknown take uses up its id.
                self.need(Right::Lock, lock)?;
                Ok(owner.map(|_| Outcome::Withdrawn))
            }
            Command::DropLease { lock, handle } => {
                Ok(self.lease(machine.lease_principal(lock, handle), lock).map(Outcome::Refused))
            }
            Command::Alter(alter) => self.alter(machine, alter),
            Command::Manage(manage) => self.manage(machine, manage),
            Command::Document(document) => self.document(machine, document),
            Command::EndSession(end) => self.need_all(Right::Admin, &end.namespace).map(|()| None),
            Command::ChangeSetting(_) => {
                self.access.need_cluster(&self.principal, ClusterRight::Operate).map(|()| None)
            }
            Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => Err(Denied::Forbidden("only a node makes this command".to_owned())),
        }
    }

    fn acquire(&self, machine: &Machine, acquire: &Acquire) -> Decision<Outcome> {
        let session = acquire.request.session;
        if let Some(refusal) = self.session(machine, session) {
            return Ok(Some(Outcome::Refused(refusal)));
        }
        // An ended session is answered with its end.
        let Some(namespace) = machine.namespace_of(session) else { return Ok(None) };
        for name in acquire.locks.keys() {
            self.access.need(&self.principal, Right::Lock, namespace, On::Name(name.as_str()))?;
        }
        self.parent(machine, session, acquire.choices().parent.as_ref())?;
        Ok(None)
    }

    /// Refuses a parent that is not the caller's own session: its wait could be made to look like part of a deadlock.
    /// `session` is the one that the caller has proven.
    fn parent(&self, machine: &Machine, session: SessionId, parent: Option<&Parent>) -> Result<(), Denied> {
        let Some(parent) = parent else { return Ok(()) };
        let own = match machine.session_principal(parent.session) {
            Some((namespace, owner)) => {
                parent.session == session || self.made(owner) || self.administers_all(namespace)
            }
            None => machine.was_opened(parent.session),
        };
        if own { Ok(()) } else { Err(Denied::Forbidden("a parent must be a session of your own".to_owned())) }
    }

    fn alter(&self, machine: &Machine, alter: &Alter) -> Decision<Outcome> {
        let session = alter.request.session;
        if let Some(refusal) = self.session(machine, session) {
            return Ok(Some(Outcome::Refused(refusal)));
        }
        let Some(namespace) = machine.namespace_of(session) else { return Ok(None) };
        let lock = LockKey { namespace: namespace.clone(), name: alter.name.clone() };
        match &alter.what {
            Alteration::Downgrade { .. } | Alteration::ReturnPermits { .. } => Ok(None),
            Alteration::Upgrade { .. } | Alteration::SetValue { .. } => self.need(Right::Lock, &lock).map(|()| None),
            Alteration::Resume { token, .. } => {
                self.need(Right::Lock, &lock)?;
                Ok(self.lease(machine.hold_principal(&lock, *token), &lock).map(Outcome::Refused))
            }
        }
    }

    /// Refuses another's lease or hold like an unknown one.
    fn lease(&self, owner: Option<&Principal>, lock: &LockKey) -> Option<Refusal> {
        let another = owner.is_some_and(|owner| !self.owns(lock, owner));
        another.then(|| Refusal::NotHeld { lock: lock.clone() })
    }

    fn manage(&self, machine: &Machine, Manage { lock, what }: &Manage) -> Decision<Outcome> {
        match what {
            Managing::SetLimit { .. } | Managing::RemoveLimit | Managing::BreakHold { .. } => {
                self.need(Right::Admin, lock).map(|()| None)
            }
            Managing::Ask { .. } => self.need(Right::Lock, lock).map(|()| None),
            Managing::HandOver { token, to } => {
                let own = machine.hold_principal(lock, *token).is_some_and(|owner| self.made(owner));
                self.need(if own { Right::Lock } else { Right::Admin }, lock)?;
                // The holder may know which sessions are open where its lock is, but not how others ended.
                let open_here = machine.namespace_of(*to) == Some(&lock.namespace);
                let hidden = !open_here && (self.hides(machine, *to) || !machine.was_opened(*to));
                Ok(hidden.then(|| Outcome::Refused(unknown(*to))))
            }
        }
    }

    fn document(&self, machine: &Machine, document: &DocumentCommand) -> Decision<Outcome> {
        let owners = || machine.principals_of_documents(document);
        match document {
            DocumentCommand::Grab(Grab { lock, ts, .. }) => {
                let another = owners().any(|(_, owner)| !self.owns(lock, owner));
                self.need(if another { Right::Admin } else { Right::Lock }, lock)?;
                let unknown = || Outcome::Refused(machine.held_or_kept_closed(lock));
                Ok(self.is_anothers_take(machine, lock, *ts).then(unknown))
            }
            DocumentCommand::Unlock { namespace, name, .. } => {
                let on = name.as_ref().map_or(On::All, |name| On::Name(name.as_str()));
                self.unlock(namespace, on, owners())
            }
            DocumentCommand::UnlockAll { namespace, .. } => {
                self.need_all(Right::Lock, namespace)?;
                self.unlock(namespace, On::All, owners())
            }
            DocumentCommand::Ping { namespace, .. } | DocumentCommand::StopPing { namespace, .. } => {
                self.need_all(Right::Lock, namespace).map(|()| None)
            }
            DocumentCommand::RemoveExpired { lock, .. } => self.need(Right::Lock, lock).map(|()| None),
            DocumentCommand::Confirm { lock, ts } => {
                self.need(Right::Lock, lock)?;
                let unknown = || Outcome::Refused(machine.not_proven(lock));
                Ok(self.is_anothers_take(machine, lock, *ts).then(unknown))
            }
            DocumentCommand::SwapValue { lock, handle, .. } => {
                self.need(Right::Lock, lock)?;
                Ok(self.lease(machine.lease_principal(lock, handle), lock).map(Outcome::Refused))
            }
        }
    }

    /// Whether another principal has the document with this `ts`, which is public.
    fn is_anothers_take(&self, machine: &Machine, lock: &LockKey, ts: DocumentId) -> bool {
        machine.take_principal(lock, ts.take_id()).is_some_and(|owner| !self.owns(lock, owner))
    }

    /// Whether the caller has the right on another principal's document that this command would overtake or unlock, if
    /// there is one.
    pub(super) fn may_administer(&self, document: &DocumentCommand) -> bool {
        let (namespace, on) = match document {
            DocumentCommand::Grab(Grab { lock, seen: Some(_), .. }) => (&lock.namespace, On::Name(lock.name.as_str())),
            DocumentCommand::Unlock { namespace, name: Some(name), .. } => (namespace, On::Name(name.as_str())),
            DocumentCommand::Unlock { namespace, name: None, .. } | DocumentCommand::UnlockAll { namespace, .. } => {
                (namespace, On::Any)
            }
            DocumentCommand::Grab(Grab { seen: None, .. })
            | DocumentCommand::Ping { .. }
            | DocumentCommand::StopPing { .. }
            | DocumentCommand::RemoveExpired { .. }
            | DocumentCommand::Confirm { .. }
            | DocumentCommand::SwapValue { .. } => return false,
        };
        self.access.has(&self.principal, Right::Admin, namespace, on)
    }

    /// Returns the first document of another principal that this command would overtake or unlock with a right.
    pub(super) fn anothers_document(&self, machine: &Machine, document: &DocumentCommand) -> Option<LockKey> {
        let mut owners = machine.principals_of_documents(document);
        let (lock, _) = owners.find(|(_, owner)| **owner != self.principal && !owner.is_anonymous())?;
        matches!(self.document(machine, document), Ok(None)).then_some(lock)
    }

    /// Passes if all of these documents are the caller's own, and answers as if there were none if one is not. Without
    /// any, the command uses up a `ts`, or waits for the log, and so needs a right.
    fn unlock<'a>(
        &self,
        namespace: &Namespace,
        on: On<'_>,
        mut owners: impl Iterator<Item = (LockKey, &'a Principal)>,
    ) -> Decision<Outcome> {
        let owns = |(lock, owner): (LockKey, &Principal)| self.owns(&lock, owner);
        let first = owners.next().map(owns);
        let all_own = first != Some(false) && owners.all(owns);
        if all_own && first.is_some() {
            return Ok(None);
        }
        self.access.need(&self.principal, Right::Lock, namespace, on)?;
        Ok((!all_own).then_some(Outcome::Freed { locks: 0 }))
    }

    /// Decides about a renewal: returns the refusal if it must not be executed.
    pub(super) fn renewal(&self, machine: &Machine, target: &RenewalTarget) -> Option<Refusal> {
        match target {
            RenewalTarget::Session(session) | RenewalTarget::Hold { session, .. } => self.session(machine, *session),
            RenewalTarget::Lease { lock, handle, .. } => self.lease(machine.lease_principal(lock, handle), lock),
        }
    }

    /// Decides about a query: returns the answer if it must not be executed.
    pub(super) fn query(&self, machine: &Machine, query: &Query) -> Decision<QueryResult> {
        match query {
            Query::Check { lock, .. } | Query::Inspect { lock } | Query::Holders { lock } | Query::Tokens { lock } => {
                self.need(Right::Read, lock)?;
            }
            Query::WouldBreak { lock, .. } => self.need(Right::Admin, lock)?,
            Query::List(filter) => {
                self.access.need(&self.principal, Right::Read, &filter.namespace, On::Prefix(&filter.prefix))?;
            }
            Query::History { namespace, lock: Some(name), .. }
            | Query::Documents { namespace, which: WhichDocuments::Named(name), .. } => {
                self.access.need(&self.principal, Right::Read, namespace, On::Name(name.as_str()))?;
            }
            Query::Sessions { namespace, .. }
            | Query::History { namespace, lock: None, .. }
            | Query::Documents { namespace, which: WhichDocuments::After(_) | WhichDocuments::Stamped(_), .. }
            | Query::Pings { namespace, .. } => self.need_all(Right::Read, namespace)?,
            Query::Claim { claim: Claim::Request(request), .. } => {
                let hidden = self.hides(machine, request.session).then(|| unknown(request.session));
                let claim =
                    |refusal| QueryResult::Claim { outcome: Some(Outcome::Refused(refusal)), recalled: Vec::new() };
                return Ok(hidden.map(claim));
            }
            Query::Claim { claim: Claim::Lease(take), lock: Some(lock) } => {
                if machine.take_principal(lock, *take).is_none_or(|owner| *owner != self.principal) {
                    self.need(Right::Read, lock)?;
                }
            }
            Query::Claim { claim: Claim::Lease(_), lock: None } => {}
            Query::Explain(About::Lock(lock)) => self.need(Right::Read, lock)?,
            Query::Explain(About::Session(session)) => return Ok(self.hidden_explanation(machine, *session)),
            Query::Explain(About::Request(request)) => return Ok(self.hidden_explanation(machine, request.session)),
            // Every principal may know how large the state is.
            Query::Totals => {}
        }
        Ok(None)
    }

    fn hidden_explanation(&self, machine: &Machine, session: SessionId) -> Option<QueryResult> {
        self.hides(machine, session).then(|| QueryResult::Explained(Explanation::default()))
    }

    /// Whether the caller must not learn that this session exists, or how it ended.
    pub(super) fn hides(&self, machine: &Machine, session: SessionId) -> bool {
        machine
            .session_principal(session)
            .is_some_and(|(namespace, owner)| !self.sees((namespace, owner)) && !owner.is_anonymous())
    }

    /// Removes from a refusal what it says about names that the caller may not read.
    pub(super) fn redact(&self, refusal: &mut Refusal) {
        if let Refusal::HeldByOther { lock, .. } = refusal
            && !self.has(Right::Read, lock)
        {
            *refusal = Refusal::NotHeld { lock: lock.clone() };
        }
        if let Refusal::Deadlock { cycle } = refusal {
            cycle.retain(|link| self.has(Right::Read, &link.lock));
        }
    }

    /// Removes from an answer what it says about names that the caller may not read.
    pub(super) fn redact_answer(&self, answer: &mut QueryResult) {
        if let QueryResult::Claim { outcome: Some(Outcome::Refused(refusal)), .. } = answer {
            self.redact(refusal);
        }
        let QueryResult::Explained(Explanation { chain, freed_by, more }) = answer else { return };
        let count =
            |chain: &[crate::model::ExplainedWait]| chain.iter().map(|wait| wait.waits_for.len()).sum::<usize>();
        let before = (chain.len(), freed_by.len(), count(chain));
        chain.retain(|wait| self.has(Right::Read, &wait.lock));
        chain.iter_mut().for_each(|wait| wait.waits_for.retain(|obstacle| self.has(Right::Read, &obstacle.lock)));
        freed_by.retain(|obstacle| self.has(Right::Read, &obstacle.lock));
        *more |= before != (chain.len(), freed_by.len(), count(chain));
    }
}

/// Returns the right that the request of an operator needs.
pub(super) fn right_of(operation: &Operation) -> ClusterRight {
    match operation {
        Operation::Transfer(_) | Operation::RaiseFeatures(_) | Operation::ChangeMembers(_) => ClusterRight::Operate,
    }
}

/// The refusal of a session that does not exist.
pub(super) fn unknown(session: SessionId) -> Refusal {
    Refusal::SessionEnded { session, reason: EndReason::Expired, why: None }
}
