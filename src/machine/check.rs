//! The machine's invariants, as one function. Tests and simulations run it after every entry.

use super::{Machine, ToCheck};
use crate::model::{LockKey, Mode};
use crate::state::Lock;

impl Machine {
    /// Says which invariant is broken, if any.
    ///
    /// - One exclusive holder, or shared holders, or permits that are counted. They may be above a limit that was lowered
    ///   from outside, which evicts no holder.
    /// - No waiter waits for what is free: the head of no queue could be granted, nor any waiter that barges; except where
    ///   nothing is granted after a restore.
    /// - A cached hold is one of a session, exclusive, unnamed and without an end of its own; it is recalled where a request
    ///   waits behind it.
    /// - Nothing that ended is still there, unless the sweep stopped at its bound.
    /// - No entry was left half applied.
    /// - The state is what its records say: see `State::check`.
    pub fn check(&self) -> Result<(), String> {
        for (key, lock) in &self.state.locks {
            self.check_lock(key, lock).map_err(|broken| format!("{key:?}: {broken}"))?;
        }
        if self.to_check != ToCheck::default()
            || !self.to_recall.is_empty()
            || !self.queues_to_check.is_empty()
            || !self.events.is_empty()
        {
            return Err("an entry was left half applied".into());
        }
        self.state.check()?;
        if self.is_due() && !self.sweep_incomplete {
            return Err(format!("something was due at {:?}, and it is {:?}", self.next_deadline(), self.now()));
        }
        Ok(())
    }

    fn check_lock(&self, key: &LockKey, lock: &Lock) -> Result<(), String> {
        let exclusive = lock.holders.values().filter(|holder| holder.request.mode == Mode::Exclusive).count();
        if 0 < exclusive && 1 < lock.holders.len() {
            return Err(format!("{exclusive} exclusive holders among {}", lock.holders.len()));
        }
        if let Some(sequence) = self.next_in_queue(key, 0).filter(|_| !self.is_yet_to_open(key))
            && self.waiter_due(key, sequence).is_none()
        {
            return Err(format!("waiter {sequence} could hold the lock"));
        }
        let awaited = !lock.queue.is_empty();
        lock.holders
            .values()
            .find_map(|holder| holder.wrong_about_cached(awaited))
            .map_or(Ok(()), |wrong| Err(wrong.into()))
    }
}
