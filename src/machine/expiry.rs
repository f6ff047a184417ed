//! Ends: everything that has one stands in one ordered index, and the sweep works through what is due.

use super::Machine;
use super::looked_at;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    EndReason, FencingToken, LeaveReason, LockKey, LogTime, Namespace, ProcessId, RequestId, SessionId, TakeId,
};

/// What ends at a deadline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
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
    Take(LockKey, TakeId),
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
            let Some((_, due)) = self.due.first().cloned() else { break };
            ended += self.end_due(due);
        }
        self.swept_in_part = self.is_due();
        self.grant_what_is_free();
    }

    /// Ends one thing that is due; answers how much that was.
    fn end_due(&mut self, due: Due) -> usize {
        match due {
            Due::Session(id) => return self.end_session(id, EndReason::Expired),
            Due::Lease(lock, token) => self.end_hold(&lock, token, EndReason::Expired, None),
            Due::Wait(lock, sequence) => self.leave(&lock, sequence, LeaveReason::TimedOut),
            Due::Delay(lock, token) => self.end_delay(&lock, token),
            Due::Tombstone(id) => self.forget_tombstone(id),
            Due::Take(lock, take) => self.forget_take(&lock, take),
            Due::Process(namespace, process) => self.process_due(&namespace, &process),
            Due::Opening => return self.open_again(),
            Due::Unlocking => return self.unlock_more(),
            Due::AtMost(lock, token) => self.end_hold(&lock, token, EndReason::TimeOver, None),
        }
        1
    }

    /// Fully ends whatever is due at one lock, where the sweep stopped at its bound before it came there: a command
    /// never meets a record that has run out.
    pub(super) fn settle(&mut self, key: &LockKey) {
        if !self.swept_in_part && self.globals.unlocking.is_empty() {
            return;
        }
        self.unlock_at(key);
        if self.is_yet_to_open(key) {
            self.look_at(key, 0);
        }
        for due in self.due_at(key) {
            self.end_due(due);
        }
        self.grant_what_is_free();
    }

    /// Settles the lock that a live request waits for or holds.
    pub(super) fn settle_request(&mut self, request: RequestId) {
        if !self.swept_in_part {
            return;
        }
        let session = self.sessions.get(&request.session).into_iter();
        let standings = session.flat_map(|session| session.standings());
        let of_request = standings.filter(|(number, ..)| *number == request.number);
        let keys: Vec<LockKey> = of_request.map(|(_, key, _)| key.clone()).collect();
        for key in keys {
            self.settle(&key);
        }
    }

    /// Everything that is due at one lock. What ends together with something before it stands there all the same: it ends
    /// once, in the way that came first.
    fn due_at(&self, key: &LockKey) -> Vec<Due> {
        let Some(lock) = self.locks.get(key) else { return Vec::new() };
        let now = self.globals.now;
        let mut ends = Vec::new();
        for (token, holder) in &lock.holders {
            looked_at();
            let session = holder.request.claim.session();
            ends.extend(self.session_deadline(session).zip(session.map(Due::Session)));
            ends.extend(holder.own_ends(key, *token));
        }
        ends.retain(|(end, _)| *end < now);
        ends.sort_unstable();
        let mut due: Vec<Due> = ends.into_iter().map(|(_, due)| due).collect();
        let delays = lock.delays.iter().filter(|(_, delayed)| delayed.until < now);
        due.extend(delays.map(|(token, _)| Due::Delay(key.clone(), *token)));
        due.extend(lock.queue.keys().filter_map(|sequence| self.waiter_due(key, *sequence)));
        due
    }

    /// What has run out about this waiter: its patience, or its session.
    pub(super) fn waiter_due(&self, key: &LockKey, sequence: u64) -> Option<Due> {
        let waiter = self.locks.get(key)?.queue.get(&sequence)?;
        let now = self.globals.now;
        let session = waiter.request.claim.session();
        let ended = session.filter(|id| self.sessions.get(id).is_none_or(|session| session.record.deadline < now));
        if let Some(id) = ended.filter(|_| !faults::on(Fault::DeadWaiterLeft)) {
            return Some(Due::Session(id));
        }
        let impatient = waiter.deadline.is_some_and(|deadline| deadline < now);
        impatient.then(|| Due::Wait(key.clone(), sequence))
    }

    /// Ends what [`waiter_due`](Self::waiter_due) found.
    pub(super) fn end_found(&mut self, due: Due) {
        self.end_due(due);
    }

    /// Moves an end in the index; `None` on either side is no end.
    pub(super) fn move_due(&mut self, from: Option<LogTime>, to: Option<LogTime>, due: Due) {
        if let Some(from) = from {
            self.due.remove(&(from, due.clone()));
        }
        if let Some(to) = to {
            self.due.insert((to, due));
        }
    }

    fn forget_tombstone(&mut self, id: SessionId) {
        let Some(tombstone) = self.tombstones.remove(&id) else { return };
        self.touch(super::RecordKey::Tombstone(id));
        self.move_due(Some(tombstone.deadline), None, Due::Tombstone(id));
        self.used_less(&tombstone.namespace, |usage| usage.sessions -= 1);
        self.handles.remove(&(tombstone.namespace, tombstone.handle));
    }

    fn forget_take(&mut self, lock: &LockKey, take: TakeId) {
        let Some(known) = self.takes.remove(&(lock.clone(), take)) else { return };
        self.dirty.gone(super::RecordKey::Take(lock.clone(), take));
        self.move_due(Some(known.forget), None, Due::Take(lock.clone(), take));
        self.used_less(&lock.namespace, |usage| usage.takes -= 1);
    }
}
