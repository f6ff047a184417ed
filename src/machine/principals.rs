//! The principals of sessions, holds, waits and documents, for decisions about rights.

use super::Machine;
use super::lease::KnownTake;
use crate::model::{
    Claim, DocumentCommand, FencingToken, Grab, Handle, LeaseRequestId, LockKey, LockName, Namespace, OpenSession,
    Principal, SessionId,
};
use crate::state::looked_at;

impl Machine {
    /// The namespace and the principal of a session that is open, or whose end is remembered.
    #[must_use]
    pub fn session_principal(&self, session: SessionId) -> Option<(&Namespace, &Principal)> {
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
    pub fn hold_principal(&self, lock: &LockKey, token: FencingToken) -> Option<&Principal> {
        let delayed = || self.state.lock(lock)?.delays.get(&token).map(|delayed| &delayed.holder);
        self.state.holder(lock, token).or_else(delayed).map(|holder| &holder.request.principal)
    }

    /// The principal of a lease or document that this handle proves.
    #[must_use]
    pub fn lease_principal(&self, lock: &LockKey, handle: &Handle) -> Option<&Principal> {
        self.hold_principal(lock, self.proven_hold(lock, handle)?)
    }

    /// The principals of the leases and documents that hold a lock.
    pub fn lease_principals(&self, lock: &LockKey) -> impl Iterator<Item = &Principal> {
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
    pub fn take_principal(&self, lock: &LockKey, take: LeaseRequestId) -> Option<&Principal> {
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

    /// The handle of the session that lost a hold, and the principal of the hold. The handle is `None` once the session
    /// is forgotten. Returns `None` if no session can resume the hold.
    #[must_use]
    pub fn lost_handle(&self, lock: &LockKey, token: FencingToken) -> Option<(Option<&Handle>, &Principal)> {
        let delayed = self.resumable(lock, token)?;
        Some((self.handle_of_loser(delayed), &delayed.holder.request.principal))
    }

    /// The held documents that this command would overtake or unlock, each with its principal. The iterator is lazy: a
    /// process may hold very many, and the caller stops at the first one of another principal.
    pub fn principals_of_documents<'a>(
        &'a self,
        command: &'a DocumentCommand,
    ) -> Box<dyn Iterator<Item = (LockKey, &'a Principal)> + 'a> {
        let of_take = move |lock: LockKey, take| {
            looked_at();
            let owner = self.take_principal(&lock, take)?;
            Some((lock, owner))
        };
        let key = |namespace: &Namespace, name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        match command {
            DocumentCommand::Grab(Grab { lock, seen: Some(seen), .. }) => {
                Box::new(of_take(lock.clone(), seen.take_id()).into_iter())
            }
            DocumentCommand::Unlock { namespace, ts, name: Some(name) } => {
                Box::new(of_take(key(namespace, name), ts.take_id()).into_iter())
            }
            DocumentCommand::Unlock { namespace, ts, name: None } => {
                let stamped = self.state.index.documents.stamped(namespace, *ts, &LockName::least());
                Box::new(stamped.filter_map(move |name| of_take(key(namespace, name), ts.take_id())))
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
