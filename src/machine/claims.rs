//! Where the requests of a session wait or hold: at one lock each, or at several for a set.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Machine;
use super::state::{ClaimState, Session, SessionRecord};
use crate::model::{LockKey, Metadata, Namespace, RequestId, SessionId, SmallMap};

impl Session {
    /// A session that has asked for nothing yet.
    pub(super) fn new(record: SessionRecord) -> Self {
        Self { record, active: SmallMap::new(), locks: 0, finished: SmallMap::new() }
    }

    /// Every lock that one of its requests waits for or holds, by request.
    pub(super) fn claims(&self) -> impl Iterator<Item = (u64, &LockKey, ClaimState)> {
        self.active.iter().flat_map(|(number, locks)| locks.iter().map(move |(key, state)| (*number, key, *state)))
    }

    /// The locks that this request waits for or holds.
    pub(super) fn claims_of(&self, number: u64) -> impl Iterator<Item = (&LockKey, ClaimState)> {
        self.active.get(&number).into_iter().flatten().map(|(key, state)| (key, *state))
    }

    /// How many of its requests wait or hold.
    pub(super) fn requests(&self) -> usize {
        self.active.len()
    }

    /// How many locks its requests wait for or hold. A lock counts once for each of its requests.
    pub(super) fn locks(&self) -> usize {
        self.locks
    }

    /// Whether this request waits or holds.
    pub(super) fn is_active(&self, number: u64) -> bool {
        self.active.contains_key(&number)
    }

    /// Its own metadata, for a request with equal metadata, as most have: both then share it.
    pub(super) fn shared_metadata(&self, metadata: &Metadata) -> Option<Arc<Metadata>> {
        let own = &self.record.metadata;
        (**own == *metadata).then(|| Arc::clone(own))
    }

    /// Notes where this request stands now.
    pub(super) fn add_claim(&mut self, number: u64, key: &LockKey, state: ClaimState) {
        let before = match self.active.get_mut(&number) {
            Some(locks) => locks.insert(key.clone(), state),
            None => self.active.insert(number, (key.clone(), state).into()).and(None),
        };
        self.locks += usize::from(before.is_none());
    }

    /// The request has ended at this lock. Returns whether it waits for no other lock and holds none.
    fn remove_claim(&mut self, number: u64, key: &LockKey) -> bool {
        let Some(locks) = self.active.get_mut(&number) else { return true };
        self.locks -= usize::from(locks.remove(key).is_some());
        let over = locks.is_empty();
        if over {
            self.active.remove(&number);
        }
        over
    }
}

impl Machine {
    /// Notes where this request stands now.
    pub(super) fn add_claim(&mut self, request: RequestId, key: &LockKey, state: ClaimState) {
        let Some(session) = self.sessions.get_mut(&request.session) else { return };
        let before = session.requests();
        session.add_claim(request.number, key, state);
        if before == 1 && session.requests() == 2 {
            self.sessions_with_several.insert((session.record.namespace.clone(), request.session));
        }
    }

    /// The request has ended at this lock. Returns whether its session lives and the request waits for another lock or holds one.
    pub(super) fn remove_claim(&mut self, request: RequestId, key: &LockKey) -> bool {
        let Some(session) = self.sessions.get_mut(&request.session) else { return false };
        let before = session.requests();
        let over = session.remove_claim(request.number, key);
        if before == 2 && session.requests() == 1 {
            self.sessions_with_several.remove(&(session.record.namespace.clone(), request.session));
        }
        !over
    }

    /// The index as the sessions say that it should be.
    pub(super) fn derived_sessions_with_several(&self) -> BTreeSet<(Namespace, SessionId)> {
        let several = self.sessions.iter().filter(|(_, session)| 1 < session.requests());
        several.map(|(id, session)| (session.record.namespace.clone(), *id)).collect()
    }

    /// The metadata of a request, shared with its session where both are equal.
    pub(super) fn share_metadata(&self, request: RequestId, metadata: &Metadata) -> Arc<Metadata> {
        let shared = self.sessions.get(&request.session).and_then(|session| session.shared_metadata(metadata));
        shared.unwrap_or_else(|| Arc::new(metadata.clone()))
    }
}
