//! The machine's invariants. Tests and simulations check them after every entry.

use super::{Machine, ToCheck};
use crate::model::{LockKey, Mode};
use crate::state::Lock;

impl Machine {
    /// Describes the first invariant that does not hold, if any.
    ///
    /// - A lock has one exclusive holder, or shared holders, or permits within its limit. After the limit was lowered,
    ///   which ends no hold, there may be more permits than the limit.
    /// - No waiter could be granted: neither the head of a queue nor a waiter that barges. The exception is the time
    ///   after a restore in which nothing is granted.
    /// - A cached hold belongs to a session, is exclusive, and has no named owner and no deadline except its session's.
    ///   It is recalled if a request waits behind it.
    /// - Nothing is past its deadline, unless the sweep reached its bound.
    /// - No entry was applied in part.
    /// - The state equals what its records give, see `State::check`.
    pub fn check(&self) -> Result<(), String> {
        for (key, lock) in &self.state.locks {
            self.check_lock(key, lock).map_err(|broken| format!("{key:?}: {broken}"))?;
        }
        if self.to_check != ToCheck::default()
            || !self.to_recall.is_empty()
            || !self.queues_to_check.is_empty()
            || !self.events.is_empty()
        {
            return Err("an entry was applied in part".into());
        }
        self.state.check()?;
        if self.is_due() && !self.sweep_incomplete {
            return Err(format!("a deadline was at {:?}, and log time is {:?}", self.next_deadline(), self.now()));
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
        let wrong = lock.holders.values().find_map(|holder| holder.wrong_about_cached(awaited));
        wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
    }
}
