//! Owners: the principals of sessions, holds, waits and documents, for decisions about rights.

use super::Machine;
use super::lease::KnownLease;
use crate::model::{
    DocumentId, FencingToken, Handle, LeaseRequestId, LockKey, LockName, Namespace, Principal, SessionId,
};
use crate::state::Holder;

impl Machine {
    /// The namespace and the principal of an open session.
    #[must_use]
    pub fn session_owner(&self, session: SessionId) -> Option<(&Namespace, &Principal)> {
        self.state.session(session).map(|session| (&session.record.namespace, &session.record.principal))
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

    /// The principal of a take that waits or holds.
    #[must_use]
    pub fn take_owner(&self, lock: &LockKey, take: LeaseRequestId) -> Option<&Principal> {
        match self.known_take(lock, take)? {
            KnownLease::Waits(_, waiter) => Some(&waiter.request.principal),
            KnownLease::Holds(_, holder) => Some(&holder.request.principal),
            KnownLease::Finished(_) => None,
        }
    }

    /// The names and principals of all held documents with this `ts`.
    pub fn owners_of_stamp(&self, namespace: &Namespace, ts: DocumentId) -> Vec<(LockName, Principal)> {
        let names = self.state.index.documents.stamped(namespace, ts, &LockName::least());
        let held = |name: &LockName| {
            let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
            Some((name.clone(), self.take_owner(&lock, ts.take())?.clone()))
        };
        names.filter_map(held).collect()
    }

    /// The names and principals of all documents that a process holds.
    pub fn owners_of_process(&self, namespace: &Namespace, process: &str) -> Vec<(LockName, Principal)> {
        let held = self.state.index.documents.held_by(namespace, process);
        let owner = |(name, token): (&LockName, &FencingToken)| {
            let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
            let holder: &Holder = self.state.holder(&lock, *token)?;
            Some((name.clone(), holder.request.principal.clone()))
        };
        held.into_iter().flatten().filter_map(owner).collect()
    }
}
