//! Sizes of the state by namespace, and the longest waits, for the metrics of a node.

use std::ops::Bound;

use super::Machine;
use crate::model::{LockKey, Namespace};
use crate::state::looked_at;

/// Sizes of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NamespaceSizes {
    /// Sessions that are open.
    pub sessions: u64,
    /// Locks in use.
    pub locks: u64,
    /// Holders of all locks.
    pub holders: u64,
    /// Requests in all queues.
    pub waiters: u64,
    /// The used share of the quotas of sessions, locks, takes and waiters, each 0 to 1. Sessions that have ended count
    /// as long as they are remembered.
    pub used: [f64; 4],
}

/// The longest waits of some locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    /// The longest wait of each lock with waiters, in milliseconds of log time, with the namespace of the lock.
    pub longest: Vec<(Namespace, u64)>,
    /// The last of these locks; `None` if there are no further ones.
    pub more_after: Option<LockKey>,
}

impl NamespaceSizes {
    /// Adds the sizes of another namespace. The used shares become those of the fuller one.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.locks += other.locks;
        self.holders += other.holders;
        self.waiters += other.waiters;
        self.used.iter_mut().zip(other.used).for_each(|(used, other)| *used = used.max(other));
    }
}

impl Machine {
    /// The sizes of the namespaces in use after this one, in the order of their names, at most `rows` of them.
    #[must_use]
    pub fn sizes_after(&self, after: Option<&Namespace>, rows: usize) -> Vec<(Namespace, NamespaceSizes)> {
        let later = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let quotas = [self.quotas.sessions, self.quotas.locks, self.quotas.takes, self.quotas.waiters];
        let usage = self.state.index.usage.range(later).take(rows).map(|(namespace, usage)| {
            looked_at();
            let mut used = [usage.sessions, usage.locks, usage.takes, usage.waiters].map(|used| used as f64);
            used.iter_mut().zip(quotas).for_each(|(used, quota)| *used /= quota.max(1) as f64);
            let sizes = NamespaceSizes {
                sessions: usage.open_sessions,
                locks: usage.locks,
                holders: usage.holders,
                waiters: usage.waiters,
                used,
            };
            (namespace.clone(), sizes)
        });
        usage.collect()
    }

    /// The longest waits of the locks after this one, in the order of their names, of at most `rows` locks.
    #[must_use]
    pub fn waits_after(&self, after: Option<&LockKey>, rows: usize) -> Waits {
        let later = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut waits = Waits::default();
        let mut last: Option<&LockKey> = None;
        for (looked, (key, lock)) in self.state.locks.range(later).enumerate() {
            if looked == rows {
                waits.more_after = last.cloned();
                break;
            }
            looked_at();
            // Only a request for an upgrade joins a queue at its head, and there is at most one.
            let oldest = lock.queue.values().take(2).map(|waiter| waiter.since).min();
            let longest = oldest.map(|since| (key.namespace.clone(), self.state.globals.now.ms_since(since)));
            waits.longest.extend(longest);
            last = Some(key);
        }
        waits
    }

    /// The size of the history of all namespaces, in bytes.
    #[must_use]
    pub fn history_bytes(&self) -> usize {
        self.state.history.size_bytes()
    }
}
