//! Semaphores whose limit the cluster keeps: set, changed and removed from outside.

use super::{Machine, RecordKey};
use crate::model::{EventKind, Kind, LockKey, Mode, Outcome, QuotaKind, Refusal, WaitEndReason};

impl Machine {
    /// Keeps a semaphore with this limit. Who waits for more than that is refused; nobody who holds is evicted.
    pub(super) fn set_limit(&mut self, key: &LockKey, limit: u32) -> Outcome {
        let known = self.locks.get(key).map(|lock| (lock.kind, lock.limit, lock.limit_kept));
        let same = match known {
            Some((Kind::Lock, ..)) => {
                return Outcome::Refused(Refusal::KindMismatch { lock: key.clone(), kind: Kind::Lock });
            }
            Some((Kind::Semaphore, old, kept)) => old == Some(limit) && kept,
            None => {
                let locks = self.used(&key.namespace).locks;
                if let Err(refusal) = self.quotas.one_more(QuotaKind::Locks, locks) {
                    return Outcome::Refused(refusal);
                }
                false
            }
        };
        if same {
            return Outcome::Done;
        }
        let lock = self.lock_or_new(key, Kind::Semaphore, Some(limit));
        lock.limit = Some(limit);
        lock.limit_kept = true;
        self.limit_changed(key, Some(limit));
        self.capacity_changes(key);
        self.refuse_the_impossible(key, limit);
        self.holders_changed(key);
        if known.and_then(|(_, old, _)| old).is_some_and(|old| limit < old) {
            self.check_waiters(key);
        }
        Outcome::Done
    }

    /// Forgets the limit with the semaphore's last user.
    pub(super) fn remove_limit(&mut self, key: &LockKey) -> Outcome {
        let Some(lock) = self.locks.get_mut(key) else { return Outcome::Done };
        if lock.kind == Kind::Lock {
            return Outcome::Refused(Refusal::KindMismatch { lock: key.clone(), kind: Kind::Lock });
        }
        if lock.limit_kept {
            lock.limit_kept = false;
            self.limit_changed(key, None);
        }
        Outcome::Done
    }

    fn limit_changed(&mut self, key: &LockKey, limit: Option<u32>) {
        self.mark_dirty(RecordKey::Semaphore(key.clone()));
        self.check_queue(key, 0);
        self.happened(key, None, EventKind::LimitChanged { limit }, None);
    }

    /// A waiter that wants more than there will ever be would keep everybody behind it waiting for ever.
    fn refuse_the_impossible(&mut self, key: &LockKey, limit: u32) {
        let Some(lock) = self.locks.get(key) else { return };
        let wants = |mode: Mode| match mode {
            Mode::Permits(count) => count,
            Mode::Exclusive | Mode::Shared => 0,
        };
        let waiters = lock.queue.iter().map(|(sequence, waiter)| (*sequence, wants(waiter.request.mode)));
        let beyond: Vec<_> = waiters.filter(|(_, count)| limit < *count).collect();
        for (sequence, asked) in beyond {
            let refusal = Refusal::LimitExceeded { lock: key.clone(), limit, asked };
            self.end_wait_as(key, sequence, WaitEndReason::Impossible, Outcome::Refused(refusal));
        }
    }
}
