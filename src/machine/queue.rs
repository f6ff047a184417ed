//! Who is next in a queue: first come, first served, except among those that barge.

use super::Machine;
use super::lock::Lock;
use super::state::{Purpose, Waiter};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{Fairness, LockKey, Mode, QuotaKind};

impl Machine {
    /// The first waiter that could be granted now, or that has run out; `None` where everybody has to wait on.
    ///
    /// A waiter that cannot be granted stops everybody behind it; one that barges stops only the fair ones.
    pub(super) fn next_in_queue(&self, key: &LockKey) -> Option<u64> {
        let lock = self.locks.get(key)?;
        if faults::on(Fault::LifoQueue) {
            return lock.queue.last_key_value().map(|(sequence, _)| *sequence);
        }
        for (looked_at, (sequence, waiter)) in lock.queue.iter().enumerate() {
            let passes = 0 < looked_at;
            if passes && !waiter.barges() {
                return None;
            }
            if self.waiter_due(key, *sequence).is_some() || self.could_hold(lock, waiter) {
                return Some(*sequence);
            }
            if !waiter.barges() || limits::BARGING_LOOKED_AT_MAX <= looked_at + 1 {
                return None;
            }
        }
        None
    }

    /// Whether a waiter could be granted now: the holders admit it, and there is room for one more of them.
    pub(super) fn could_hold(&self, lock: &Lock, waiter: &Waiter) -> bool {
        let holders = lock.holders.len() as u64;
        let room = || match waiter.purpose {
            Purpose::Hold => self.quotas.one_more(QuotaKind::HoldersOfLock, holders).is_ok(),
            Purpose::Upgrade(_) => true,
        };
        lock.admits_waiter(waiter) && room()
    }

    /// Whether a newcomer may hold the lock at once: the holders admit it, and it passes nobody whom it may not pass.
    pub(super) fn may_enter(&self, lock: &Lock, mode: Mode, fairness: Fairness) -> bool {
        let passes_all = match fairness {
            Fairness::Fair => lock.queue.is_empty(),
            Fairness::Barging => lock.queue.len() == lock.barging,
        };
        passes_all && lock.admits(mode)
    }
}

/// Whether a hold in one mode is as good as one in the other: it may be entered again so.
pub(super) fn covers(held: Mode, asked: Mode) -> bool {
    match (held, asked) {
        (Mode::Exclusive, Mode::Exclusive | Mode::Shared) | (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { count: held, .. }, Mode::Permits { count: asked, .. }) => 0 < asked && asked <= held,
        (Mode::Exclusive | Mode::Shared | Mode::Permits { .. }, _) => false,
    }
}

/// How many of a queue barge.
pub(super) fn barging_among<'a>(waiters: impl Iterator<Item = &'a Waiter>) -> usize {
    waiters.filter(|waiter| waiter.barges()).count()
}
