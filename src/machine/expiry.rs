//! Ends: everything that has one stands in one ordered index, and the sweep works through what is due.

use super::{Machine, looked_at};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    EndReason, FencingToken, LeaseRequestId, LockKey, LogTime, Namespace, ProcessId, RequestId, SessionId,
    WaitEndReason,
};

/// What ends at a deadline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeadlineOf {
    /// A session, with everything that it holds or waits for.
    Session(SessionId),
    /// A token lease.
    Lease(LockKey, FencingToken),
    /// A waiter's patience.
    Wait(LockKey, u64),
    /// The time for which an ended hold keeps its name closed.
    Delay(LockKey, FencingToken),
    /// The memory of an ended session.
    Tombstone(SessionId),
    /// The memory of a take.
    FinishedLease(LockKey, LeaseRequestId),
    /// The memory of a process.
    Process(Namespace, ProcessId),
    /// The time without grants after a restore.
    Opening,
    /// Documents that a command freed and did not go through.
    Unlocking,
    /// The longest time that a hold asked for.
    AtMost(LockKey, FencingToken),
}

impl Machine {
    /// Ends what is due, in deadline order, and grants what that frees. It stops after a bounded number of holds,
    /// waiters and sessions; the next entry goes on. A session is never ended in part.
    pub(super) fn sweep(&mut self) {
        let mut ended = 0;
        while ended < limits::SWEEP_AN_ENTRY_MAX && self.is_due() {
            let Some((_, due)) = self.deadlines.first().cloned() else { break };
            ended += self.end(due);
        }
        self.sweep_incomplete = self.is_due();
        self.grant_ready();
    }

    /// Ends one thing that is due; answers how much that was.
    fn end(&mut self, due: DeadlineOf) -> usize {
        match due {
            DeadlineOf::Session(id) => return self.end_session(id, EndReason::Expired),
            DeadlineOf::Lease(lock, token) => self.end_hold(&lock, token, EndReason::Expired, None),
            DeadlineOf::Wait(lock, sequence) => {
                let answer = self.ran_out(&lock, sequence);
                self.end_wait_as(&lock, sequence, WaitEndReason::TimedOut, answer);
            }
            DeadlineOf::Delay(lock, token) => self.end_delay(&lock, token),
            DeadlineOf::Tombstone(id) => self.forget_tombstone(id),
            DeadlineOf::FinishedLease(lock, take) => self.forget_take(&lock, take),
            DeadlineOf::Process(namespace, process) => self.process_due(&namespace, &process),
            DeadlineOf::Opening => return self.open_again(),
            DeadlineOf::Unlocking => return self.unlock_more(),
            DeadlineOf::AtMost(lock, token) => self.end_hold(&lock, token, EndReason::TimeOver, None),
        }
        1
    }

    /// Ends every hold and wait of this lock whose deadline has passed. Needed when the sweep stopped at its limit: a command never
    /// meets a record that has run out.
    pub(super) fn expire_due_at(&mut self, key: &LockKey) {
        if !self.sweep_incomplete && self.globals.unlocking.is_empty() {
            return;
        }
        self.unlock_at(key);
        if self.is_yet_to_open(key) {
            self.check_queue(key, 0);
        }
        for due in self.due_at(key) {
            self.end(due);
        }
        self.grant_ready();
    }

    /// Settles the lock that a live request waits for or holds.
    pub(super) fn expire_due_of(&mut self, request: RequestId) {
        if !self.sweep_incomplete {
            return;
        }
        let keys: Vec<LockKey> = self.claims_of(request).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.expire_due_at(&key);
        }
    }

    /// Everything that is due at one lock. What ends together with something before it stands there all the same: it ends
    /// once, in the way that came first.
    fn due_at(&self, key: &LockKey) -> Vec<DeadlineOf> {
        let Some(lock) = self.locks.get(key) else { return Vec::new() };
        let now = self.globals.now;
        let mut ends = Vec::new();
        for (token, holder) in &lock.holders {
            looked_at();
            let session = holder.request.claim.session();
            ends.extend(self.session_deadline(session).zip(session.map(DeadlineOf::Session)));
            ends.extend(holder.own_ends(key, *token));
        }
        ends.retain(|(end, _)| *end < now);
        ends.sort_unstable();
        let mut due: Vec<DeadlineOf> = ends.into_iter().map(|(_, due)| due).collect();
        let delays = lock.delays.iter().filter(|(_, delayed)| delayed.until < now);
        due.extend(delays.map(|(token, _)| DeadlineOf::Delay(key.clone(), *token)));
        due.extend(lock.queue.keys().filter_map(|sequence| self.waiter_due(key, *sequence)));
        due
    }

    /// What has run out about this waiter: its patience, or its session.
    pub(super) fn waiter_due(&self, key: &LockKey, sequence: u64) -> Option<DeadlineOf> {
        let waiter = self.locks.get(key)?.queue.get(&sequence)?;
        let now = self.globals.now;
        let session = waiter.request.claim.session();
        let ended = session.filter(|id| self.sessions.get(id).is_none_or(|session| session.record.deadline < now));
        if let Some(id) = ended.filter(|_| !faults::on(Fault::DeadWaiterLeft)) {
            return Some(DeadlineOf::Session(id));
        }
        let impatient = waiter.deadline.is_some_and(|deadline| deadline < now);
        impatient.then(|| DeadlineOf::Wait(key.clone(), sequence))
    }

    /// Ends what [`waiter_due`](Self::waiter_due) found.
    pub(super) fn expire(&mut self, due: DeadlineOf) {
        self.end(due);
    }

    /// Moves an end in the index; `None` on either side is no end.
    pub(super) fn move_deadline(&mut self, from: Option<LogTime>, to: Option<LogTime>, due: DeadlineOf) {
        if let Some(from) = from {
            self.deadlines.remove(&(from, due.clone()));
        }
        if let Some(to) = to {
            self.deadlines.insert((to, due));
        }
    }

    fn forget_tombstone(&mut self, id: SessionId) {
        let Some(tombstone) = self.tombstones.remove(&id) else { return };
        self.mark_dirty(super::RecordKey::Tombstone(id));
        self.move_deadline(Some(tombstone.deadline), None, DeadlineOf::Tombstone(id));
        self.used_less(&tombstone.namespace, |usage| usage.sessions -= 1);
        self.handles.remove(&(tombstone.namespace, tombstone.handle));
    }

    fn forget_take(&mut self, lock: &LockKey, take: LeaseRequestId) {
        let Some(known) = self.finished_leases.remove(&(lock.clone(), take)) else { return };
        self.dirty.gone(super::RecordKey::FinishedLease(lock.clone(), take));
        self.move_deadline(Some(known.forget), None, DeadlineOf::FinishedLease(lock.clone(), take));
        self.used_less(&lock.namespace, |usage| usage.takes -= 1);
    }
}
