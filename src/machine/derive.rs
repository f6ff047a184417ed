//! What is derived from the records: built at start, kept up to date by every change, compared by `check`.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::expiry::Due;
use super::state::Usage;
use crate::model::{Handle, LogTime, Namespace, SessionId, Totals};

impl Machine {
    pub(super) fn derived_deadlines(&self) -> BTreeSet<(LogTime, Due)> {
        let mut due = BTreeSet::new();
        for (id, session) in &self.sessions {
            due.insert((session.record.deadline, Due::Session(*id)));
        }
        for (id, tombstone) in &self.tombstones {
            due.insert((tombstone.deadline, Due::Tombstone(*id)));
        }
        for ((lock, id), take) in &self.takes {
            due.insert((take.forget, Due::Take(lock.clone(), *id)));
        }
        for (key, lock) in &self.locks {
            for (token, holder) in &lock.holders {
                due.extend(holder.own_ends(key, *token));
            }
            for (token, delayed) in &lock.delays {
                due.insert((delayed.until, Due::Delay(key.clone(), *token)));
            }
            for (sequence, waiter) in lock.queue.iter() {
                if let Some(deadline) = waiter.deadline {
                    due.insert((deadline, Due::Wait(key.clone(), *sequence)));
                }
            }
        }
        for ((namespace, process), record) in &self.documents.pings {
            due.insert((record.kept, Due::Process(namespace.clone(), process.clone())));
        }
        due.extend(self.globals.closed_until.map(|until| (until, Due::Opening)));
        due.extend(self.globals.unlocking.first().map(|unlocking| (unlocking.since, Due::Unlocking)));
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
            namespace.takes += lock.takes.len() as u64;
        }
        for (lock, _) in self.takes.keys() {
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
