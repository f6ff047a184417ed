//! Owners: the principals of sessions, holds, waits and documents, for decisions about rights.

use super::Machine;
use super::lease::KnownTake;
use super::requests::{of_alter, of_release};
use crate::model::{
    Alter, Alteration, Claim, Command, DocumentCommand, FencingToken, Grab, Handle, LeaseRequestId, LockKey, LockName,
    Mode, Namespace, OpenSession, Outcome, Principal, Release, RequestId, SessionId,
};
use crate::state::{ClaimState, Holder, WhichHeld, looked_at};

impl Machine {
    /// The namespace and the principal of a session that is open, or whose end is remembered.
    #[must_use]
    pub fn session_owner(&self, session: SessionId) -> Option<(&Namespace, &Principal)> {
        let open = self.state.session(session).map(|open| (&open.record.namespace, &open.record.principal));
        let ended = || self.state.tombstones.get(&session).map(|ended| (&ended.namespace, &ended.principal));
        open.or_else(ended)
    }

    /// Whether a session was opened with this id, and may have ended since.
    #[must_use]
    pub fn was_opened(&self, session: SessionId) -> bool {
        session <= SessionId::new(self.state.globals.epoch, self.state.globals.sessions)
    }

    /// The open session with this handle.
    #[must_use]
    pub fn session_of(&self, namespace: &Namespace, handle: &Handle) -> Option<SessionId> {
        let known = self.state.index.handles.get(&(namespace.clone(), handle.clone())).copied();
        known.filter(|session| self.lives(*session))
    }

    /// The principal of a hold, or of an ended hold that keeps its name or permits closed.
    #[must_use]
    pub fn hold_owner(&self, lock: &LockKey, token: FencingToken) -> Option<&Principal> {
        let delayed = || self.state.lock(lock)?.delays.get(&token).map(|delayed| &delayed.holder);
        self.state.holder(lock, token).or_else(delayed).map(|holder| &holder.request.principal)
    }

    /// The principal of a lease or document that this handle proves.
    #[must_use]
    pub fn lease_owner(&self, lock: &LockKey, handle: &Handle) -> Option<&Principal> {
        self.hold_owner(lock, self.proven_hold(lock, handle)?)
    }

    /// The principals of the leases and documents that hold a lock.
    pub fn lease_owners(&self, lock: &LockKey) -> impl Iterator<Item = &Principal> {
        let requests = self.state.holders(lock).map(|(_, holder)| &holder.request);
        let leases = requests.filter(|request| matches!(request.claim, Claim::Lease(_)));
        leases.map(|request| &request.principal)
    }

    /// The principal of the open session with the handle of this command, if another client has opened it.
    #[must_use]
    pub fn opened_by_another(&self, open: &OpenSession) -> Option<&Principal> {
        let session = self.session_of(&open.namespace, &open.handle)?;
        let record = &self.state.session(session)?.record;
        (record.instance != open.instance).then_some(&record.principal)
    }

    /// The principal of a take that waits or holds.
    #[must_use]
    pub fn take_owner(&self, lock: &LockKey, take: LeaseRequestId) -> Option<&Principal> {
        match self.known_take(lock, take)? {
            KnownTake::Waits(_, waiter) => Some(&waiter.request.principal),
            KnownTake::Holds(_, holder) => Some(&holder.request.principal),
            KnownTake::Finished(_) => None,
        }
    }

    /// Whether the handle proves a take; `None` if the take is not known.
    #[must_use]
    pub fn take_proven(&self, lock: &LockKey, take: LeaseRequestId, handle: &Handle) -> Option<bool> {
        Some(self.known_take(lock, take)?.is_proven_by(handle))
    }

    /// The handle of the session that lost a hold, if it is still known, and the principal of the hold. `None` if no
    /// session can resume the hold.
    #[must_use]
    pub fn lost_handle(&self, lock: &LockKey, token: FencingToken) -> Option<(Option<&Handle>, &Principal)> {
        let delayed = self.resumable(lock, token)?;
        Some((self.handle_of_loser(delayed), &delayed.holder.request.principal))
    }

    /// Whether a command gives back or ends something. False if it finds nothing or changes nothing, if it was executed
    /// before, and for all other commands.
    #[must_use]
    pub fn ends_something(&self, command: &Command) -> bool {
        if self.known_answer(command).is_some() {
            return false;
        }
        match command {
            Command::CloseSession { session, .. } => self.lives(*session),
            Command::Cancel { request } => {
                !self.granted_upgrade(*request) && self.state.claims_of(*request).next().is_some()
            }
            Command::Release(Release { request, name, token, acquire, .. }) => {
                let releases = |number| *acquire == 0 || number == *acquire;
                self.hold_of_session(request.session, name, *token).is_some_and(|holder| holder.numbers().any(releases))
            }
            Command::Alter(Alter { request, name, what, .. }) => match *what {
                Alteration::Downgrade { token } => {
                    self.mode_entered_once(*request, name, token) == Some(Mode::Exclusive)
                }
                Alteration::ReturnPermits { token, count } => {
                    let mode = self.mode_entered_once(*request, name, token);
                    matches!(mode, Some(Mode::Permits(held)) if (1..=held).contains(&count))
                }
                Alteration::Upgrade { .. } | Alteration::SetValue { .. } | Alteration::Resume { .. } => false,
            },
            // A finished take with this handle was answered above.
            Command::CancelTake { lock, take, handle } => self.take_proven(lock, *take, handle) == Some(true),
            Command::DropLease { lock, handle } => self.lease_of(lock, handle).is_some(),
            Command::Document(DocumentCommand::Unlock { namespace, ts, name: Some(name) }) => {
                let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
                self.take_owner(&lock, ts.take()).is_some()
            }
            Command::Document(DocumentCommand::Unlock { namespace, ts, name: None }) => {
                self.frees_some(namespace, WhichHeld::Stamp(*ts))
            }
            Command::Document(DocumentCommand::UnlockAll { namespace, process, term }) => {
                self.frees_some(namespace, WhichHeld::Process(process.clone(), *term))
            }
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Acquire(_)
            | Command::TakeLease(_)
            | Command::Document(_)
            | Command::Manage(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => false,
        }
    }

    /// The hold of an open session at this lock of its namespace, under this token.
    fn hold_of_session(&self, session: SessionId, name: &LockName, token: FencingToken) -> Option<&Holder> {
        let lock = LockKey { namespace: self.namespace_of(session)?.clone(), name: name.clone() };
        self.state.holder(&lock, token).filter(|holder| holder.request.claim.session() == Some(session))
    }

    /// The mode of this hold, if its owner acquired it once.
    fn mode_entered_once(&self, request: RequestId, name: &LockName, token: FencingToken) -> Option<Mode> {
        let holder = self.hold_of_session(request.session, name, token).filter(|holder| holder.depth() == 1);
        holder.map(|holder| holder.request.mode)
    }

    /// The answer to a command of a session, or to the cancel of a take, that another entry cannot change: the
    /// remembered answer to a command that was executed before, or the refusal because its session has ended.
    #[must_use]
    pub fn known_answer(&self, command: &Command) -> Option<Outcome> {
        if let Command::CancelTake { lock, take, handle } = command {
            let known = self.known_take(lock, *take).filter(|known| matches!(known, KnownTake::Finished(_)));
            return known.filter(|known| known.is_proven_by(handle)).map(|_| Outcome::Withdrawn);
        }
        let session = command.session()?;
        let ended = !self.lives(session) && self.was_opened(session);
        match command {
            Command::CloseSession { .. } => ended.then_some(Outcome::Closed),
            Command::Acquire(_) | Command::Release(_) | Command::Alter(_) | Command::Cancel { .. } if ended => {
                Some(Outcome::Refused(self.session_ended(session)))
            }
            Command::Release(release) => self.finished_answer(release.request, of_release(release)),
            // A request that waits or holds is found although its number is below the remembered ones.
            Command::Alter(alter) if self.state.claims_of(alter.request).next().is_none() => {
                self.finished_answer(alter.request, of_alter(alter))
            }
            Command::Cancel { request } => {
                let finished = self.state.session(session)?.finished.contains_key(&request.number);
                finished.then_some(Outcome::Withdrawn)
            }
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Acquire(_)
            | Command::Alter(_)
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Document(_)
            | Command::Manage(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => None,
        }
    }

    /// Whether this request is an upgrade that was granted. A cancel leaves its hold as it is.
    fn granted_upgrade(&self, request: RequestId) -> bool {
        self.state.claims_of(request).any(|(lock, state)| {
            let ClaimState::Holding(token) = state else { return false };
            self.state.holder(lock, token).is_some_and(|holder| holder.was_upgraded_by(request.number))
        })
    }

    /// The held documents that this command would overtake or unlock, each with its principal. They are found one by
    /// one, because a process may hold very many and the first of another principal decides.
    pub fn owners_of_documents<'a>(
        &'a self,
        command: &'a DocumentCommand,
    ) -> Box<dyn Iterator<Item = (LockKey, &'a Principal)> + 'a> {
        let of_take = move |lock: LockKey, take| {
            looked_at();
            let owner = self.take_owner(&lock, take)?;
            Some((lock, owner))
        };
        let key = |namespace: &Namespace, name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        match command {
            DocumentCommand::Grab(Grab { lock, seen: Some(seen), .. }) => {
                Box::new(of_take(lock.clone(), seen.take()).into_iter())
            }
            DocumentCommand::Unlock { namespace, ts, name: Some(name) } => {
                Box::new(of_take(key(namespace, name), ts.take()).into_iter())
            }
            DocumentCommand::Unlock { namespace, ts, name: None } => {
                let stamped = self.state.index.documents.stamped(namespace, *ts, &LockName::least());
                Box::new(stamped.filter_map(move |name| of_take(key(namespace, name), ts.take())))
            }
            DocumentCommand::UnlockAll { namespace, process, .. } => {
                let held = self.state.index.documents.held_by(namespace, process.as_str());
                Box::new(held.into_iter().flatten().filter_map(move |(name, token)| {
                    looked_at();
                    let lock = key(namespace, name);
                    let holder = self.state.holder(&lock, *token)?;
                    Some((lock, &holder.request.principal))
                }))
            }
            DocumentCommand::Grab(Grab { seen: None, .. })
            | DocumentCommand::Ping { .. }
            | DocumentCommand::StopPing { .. }
            | DocumentCommand::RemoveExpired { .. }
            | DocumentCommand::SwapValue { .. }
            | DocumentCommand::Confirm { .. } => Box::new(std::iter::empty()),
        }
    }
}
