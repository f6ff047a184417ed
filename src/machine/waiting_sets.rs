//! What sets that wait are to the locks where they stand, kept as holders and queues change: a search for circles has to know
//! it of every one of many without looking at each. Derived.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::lock::Lock;
use super::parties::{Party, put, waiting_party};
use super::state::Purpose;
use crate::model::{Claim, Kind, LockKey, Namespace, SessionId};

/// Locks by the sets that wait there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WaitingSets {
    /// Where a set waits and somebody else stands as well. Only who stands at one of these may pass anybody elsewhere.
    shared: BTreeMap<Namespace, BTreeSet<LockKey>>,
    /// Where nobody holds the lock and a set is first in the queue, whose: it lacks nothing there, only elsewhere.
    ready: BTreeMap<LockKey, Party>,
}

impl WaitingSets {
    fn note(&mut self, key: &LockKey, lock: &Lock) {
        if lock.queue.has_sets() && 1 < lock.holders.len() + lock.queue.len() {
            self.shared.entry(key.namespace.clone()).or_default().insert(key.clone());
        }
        self.ready.extend(lock.ready().map(|party| (key.clone(), party)));
    }
}

impl Lock {
    /// Everybody who holds it or waits for it.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        let holders = self.holders.values().map(|holder| holder.claim);
        holders.chain(self.queue.values().map(|waiter| waiter.claim))
    }

    /// Whose set lacks nothing here. Semaphores are left out: their limit may be lower than what a set wants.
    fn ready(&self) -> Option<Party> {
        let free = self.queue.has_sets() && self.holders.is_empty() && self.kind == Kind::Lock;
        let (_, first) = self.queue.first_key_value().filter(|_| free)?;
        waiting_party(first).filter(|_| first.purpose == Purpose::Set)
    }
}

impl Machine {
    /// Holders or queue of a lock changed where sets wait, or where one waited until now.
    pub(super) fn waiting_sets_changed(&mut self, key: &LockKey) {
        let mut now = WaitingSets::default();
        self.locks.get(key).into_iter().for_each(|lock| now.note(key, lock));
        let shared = !now.shared.is_empty();
        if shared != self.waiting_sets.shared.get(&key.namespace).is_some_and(|known| known.contains(key)) {
            let known = self.waiting_sets.shared.entry(key.namespace.clone()).or_default();
            put(known, key.clone(), shared);
            if known.is_empty() {
                self.waiting_sets.shared.remove(&key.namespace);
            }
        }
        let ready = now.ready.remove(key);
        if self.waiting_sets.ready.get(key) != ready.as_ref() {
            let was = self.waiting_sets.ready.remove(key);
            was.into_iter().for_each(|party| self.tie_ready(party, false));
            ready.iter().for_each(|party| self.tie_ready(party.clone(), true));
            self.waiting_sets.ready.extend(ready.map(|party| (key.clone(), party)));
        }
    }

    /// Locks of this namespace where a set waits and somebody else stands as well.
    pub(super) fn shared_in(&self, namespace: &Namespace) -> impl Iterator<Item = (&LockKey, &Lock)> {
        let shared = self.waiting_sets.shared.get(namespace).into_iter().flatten();
        shared.filter_map(|key| Some((key, self.locks.get(key)?.as_ref())))
    }

    /// Whether a session may pass waiters at all: a set waits somewhere in its namespace beside others.
    pub(super) fn may_pass_somewhere(&self, session: SessionId) -> bool {
        self.namespace_of(session).is_some_and(|namespace| self.waiting_sets.shared.contains_key(namespace))
    }

    /// The index as the locks say that it should be.
    pub(super) fn derived_waiting_sets(&self) -> WaitingSets {
        let mut sets = WaitingSets::default();
        self.locks.iter().for_each(|(key, lock)| sets.note(key, lock));
        sets
    }

    /// Says of each set that lacks nothing somewhere, to an index of owners.
    pub(super) fn tie_all_ready(&self, to: &mut Self) {
        self.locks.values().filter_map(|lock| lock.ready()).for_each(|party| to.tie_ready(party, true));
    }
}
