//! Where a session's requests stand: one lock each, or several for a set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Machine;
use super::state::{ClaimState, Session, SessionRecord};
use crate::model::{LockKey, Metadata, Namespace, RequestId, SessionId, SmallMap};

impl Session {
    /// A session that has asked for nothing yet.
    pub(super) fn new(record: SessionRecord) -> Self {
        Self { record, live: SmallMap::new(), sets: BTreeMap::new(), finished: SmallMap::new() }
    }

    /// Every lock that one of its requests waits for or holds, by request.
    pub(super) fn claims(&self) -> impl Iterator<Item = (u64, &LockKey, ClaimState)> {
        let single = self.live.iter().map(|(number, (key, standing))| (*number, key, *standing));
        single.chain(
            self.sets
                .iter()
                .flat_map(|(number, members)| members.iter().map(move |(key, standing)| (*number, key, *standing))),
        )
    }

    /// How many of its requests wait or hold.
    pub(super) fn requests(&self) -> usize {
        self.live.len() + self.sets.len()
    }

    /// How many locks its requests wait for or hold.
    pub(super) fn locks(&self) -> usize {
        self.live.len() + self.sets.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Whether this request waits or holds.
    pub(super) fn is_live(&self, number: u64) -> bool {
        self.live.contains_key(&number) || self.sets.contains_key(&number)
    }

    /// The first lock where this request stands.
    pub(super) fn first_claim(&self, number: u64) -> Option<(&LockKey, ClaimState)> {
        let single = self.live.get(&number).map(|(key, standing)| (key, *standing));
        single.or_else(|| self.sets.get(&number)?.first_key_value().map(|(key, standing)| (key, *standing)))
    }

    /// What it said of itself, for a request that says the same, as most do: both then share it.
    pub(super) fn shared_metadata(&self, metadata: &Metadata) -> Option<Arc<Metadata>> {
        let own = &self.record.metadata;
        (**own == *metadata).then(|| Arc::clone(own))
    }

    /// Notes where this request stands now.
    pub(super) fn add_claim(&mut self, number: u64, key: &LockKey, standing: ClaimState, in_set: bool) {
        if in_set {
            self.sets.entry(number).or_default().insert(key.clone(), standing);
        } else {
            self.live.insert(number, (key.clone(), standing));
        }
    }

    /// It no longer stands there. Answers whether it stands nowhere now.
    fn remove_claim(&mut self, number: u64, key: &LockKey) -> bool {
        let Some(members) = self.sets.get_mut(&number) else {
            self.live.remove(&number);
            return true;
        };
        members.remove(key);
        let over = members.is_empty();
        if over {
            self.sets.remove(&number);
        }
        over
    }
}

impl Machine {
    /// Notes where this request stands now.
    pub(super) fn add_claim(&mut self, request: RequestId, key: &LockKey, standing: ClaimState, in_set: bool) {
        let Some(session) = self.sessions.get_mut(&request.session) else { return };
        let before = session.requests();
        session.add_claim(request.number, key, standing, in_set);
        if before == 1 && session.requests() == 2 {
            self.sessions_with_several.insert((session.record.namespace.clone(), request.session));
        }
    }

    /// The request no longer stands there. Returns whether its session lives and the request stands at another lock.
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

    /// What a request says of itself, shared with its session where that said the same.
    pub(super) fn share_metadata(&self, request: RequestId, metadata: &Metadata) -> Arc<Metadata> {
        let shared = self.sessions.get(&request.session).and_then(|session| session.shared_metadata(metadata));
        shared.unwrap_or_else(|| Arc::new(metadata.clone()))
    }
}
