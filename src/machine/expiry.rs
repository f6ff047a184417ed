//! Deadlines: one ordered index has everything with a deadline, and the sweep ends what is due.

use super::Machine;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{EndReason, LeaseRequestId, LockKey, RequestId, WaitEndReason};
use crate::state::{Change, DeadlineOf, RecordKey, looked_at};

impl Machine {
    /// Ends what is due, in the order of deadlines, and grants what that frees. It stops after a bounded number of
    /// holds, waiters and sessions; the next entry continues. A session is never ended in part.
    pub(super) fn sweep(&mut self) {
        let mut ended = 0;
        while ended < limits::SWEEP_AN_ENTRY_MAX && self.is_due() {
            let Some((_, due)) = self.state.index.deadlines.first().cloned() else { break };
            ended += self.end(due);
        }
        self.sweep_incomplete = self.is_due();
        self.swept.clear();
        self.grant_ready();
    }

    /// Ends one item that is due. Returns how many holds, waiters and sessions that was.
    pub(super) fn end(&mut self, due: DeadlineOf) -> usize {
        match due {
            DeadlineOf::Session(id) => return self.end_session(id, EndReason::Expired),
            DeadlineOf::Lease(lock, token) => self.end_hold(&lock, token, EndReason::Expired, None),
            DeadlineOf::Wait(lock, sequence) => {
                let answer = self.ran_out(&lock, sequence);
                self.end_wait_as(&lock, sequence, WaitEndReason::TimedOut, answer);
            }
            DeadlineOf::Delay(lock, token) => self.end_delay(&lock, token),
            DeadlineOf::Tombstone(id) => self.state.remove_tombstone(id),
            DeadlineOf::FinishedLease(lock, take) => self.forget_take(&lock, take),
            DeadlineOf::Process(namespace, process) => self.process_due(&namespace, &process),
            DeadlineOf::Opening => return self.open_again(),
            DeadlineOf::Unlocking => return self.unlock_more(),
            DeadlineOf::AtMost(lock, token) => self.end_hold(&lock, token, EndReason::TimeOver, None),
        }
        1
    }

    /// Ends every hold and wait of this lock whose deadline has passed. The sweep may have left some when it reached
    /// its bound, and a command must never find an expired record.
    pub(super) fn expire_due_at(&mut self, key: &LockKey) {
        if !self.sweep_incomplete && self.state.globals.unlocking.is_empty() {
            return;
        }
        self.unlock_at(key);
        // Log time does not change within an entry, so one look at each lock finds everything.
        if self.sweep_incomplete && self.swept.insert(key.clone()) {
            if self.is_yet_to_open(key) {
                self.check_queue(key, 0);
            }
            self.end_all(self.due_at(key));
        }
        self.grant_ready();
    }

    /// Ends these items in order, except for a delay that the end of an earlier item has prolonged.
    pub(super) fn end_all(&mut self, all: impl IntoIterator<Item = DeadlineOf>) {
        let now = self.state.globals.now;
        for due in all {
            let lasts = matches!(&due, DeadlineOf::Delay(key, token)
                if self.state.delayed(key, *token).is_some_and(|delayed| now <= delayed.until));
            if !lasts {
                self.end(due);
            }
        }
    }

    /// Calls [`expire_due_at`](Self::expire_due_at) for the locks that an active request waits for or holds.
    pub(super) fn expire_due_of(&mut self, request: RequestId) {
        if !self.sweep_incomplete {
            return;
        }
        let keys: Vec<LockKey> = self.state.claims_of(request).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.expire_due_at(&key);
        }
    }

    /// Everything that is due at one lock. The list may name items that end together with an earlier one; each ends
    /// only once, with the first of them.
    fn due_at(&self, key: &LockKey) -> Vec<DeadlineOf> {
        let Some(lock) = self.state.lock(key) else { return Vec::new() };
        let now = self.state.globals.now;
        let mut ends = Vec::new();
        for (token, holder) in &lock.holders {
            looked_at();
            let session = holder.request.claim.session();
            ends.extend(self.state.session_deadline(session).zip(session.map(DeadlineOf::Session)));
            ends.extend(holder.own_ends(key, *token));
        }
        let delays = lock.delays.iter().inspect(|_| looked_at());
        ends.extend(delays.map(|(token, delayed)| (delayed.until, DeadlineOf::Delay(key.clone(), *token))));
        ends.retain(|(end, _)| *end < now);
        ends.sort_unstable();
        let mut due: Vec<DeadlineOf> = ends.into_iter().map(|(_, due)| due).collect();
        let waiters = lock.queue.keys().inspect(|_| looked_at());
        due.extend(waiters.filter_map(|sequence| self.waiter_due(key, *sequence)));
        due
    }

    /// The deadline of this waiter that has passed: that of its patience, or of its session.
    pub(super) fn waiter_due(&self, key: &LockKey, sequence: u64) -> Option<DeadlineOf> {
        let waiter = self.state.waiter(key, sequence)?;
        let now = self.state.globals.now;
        let session = waiter.request.claim.session();
        let ended = session.filter(|id| self.state.session(*id).is_none_or(|session| session.record.deadline < now));
        if let Some(id) = ended.filter(|_| !faults::on(Fault::DeadWaiterLeft)) {
            return Some(DeadlineOf::Session(id));
        }
        let impatient = waiter.deadline.is_some_and(|deadline| deadline < now);
        impatient.then(|| DeadlineOf::Wait(key.clone(), sequence))
    }

    fn forget_take(&mut self, lock: &LockKey, take: LeaseRequestId) {
        let Some(known) = self.state.finished_leases.remove(&(lock.clone(), take)) else { return };
        self.state.dirty.gone(RecordKey::FinishedLease(lock.clone(), take));
        self.state.index.move_deadline(Some(known.forget), None, DeadlineOf::FinishedLease(lock.clone(), take));
        self.state.index.count(&lock.namespace, |usage| &mut usage.takes, Change::Went);
    }
}
