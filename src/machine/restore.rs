//! Turns a backup's records into the initial state of a new cluster. The new cluster does not know what was granted
//! after the backup was made, and clients may still rely on those grants. So every session ends, tokens and session ids
//! continue above all earlier ones, and nothing is granted for the longest time that an unknown grant can last.

use std::ops::Bound;

use super::Machine;
use crate::limits;
use crate::model::{EndReason, Invalid, LockKey, LogTime, Refusal, Restoring};
use crate::state::{DeadlineOf, RecordKey};

impl Machine {
    /// Turns the state of a backup into the initial state of a new cluster, as of the log position after the last of
    /// the backup.
    ///
    /// - Every session ends. Leases and documents, which belong to no session, stay.
    /// - New tokens and session ids differ from all earlier ones: the epoch is larger, and so is the first value of the
    ///   counter.
    /// - The cluster has the new random id. It has no nodes and no settings yet; the first leader proposes its own.
    ///
    /// # Errors
    /// Refuses a state that has the largest epoch, and changes nothing then.
    pub fn restore(&mut self, restoring: Restoring) -> Result<(), Invalid> {
        let epoch = restoring.epoch_after(self.state.globals.epoch)?;
        let ttl_ms_max = self.ttl_ms_bounds().1.max(self.state.globals.ttl_ms_max_ever).max(restoring.ttl_ms_max);
        self.state.globals.applied += 1;
        self.state.globals.wall = self.state.globals.wall.max(restoring.wall);
        self.state.globals.epoch = epoch;
        self.state.globals.tokens = restoring.counter();
        self.state.globals.sessions = restoring.counter();
        self.state.globals.ttl_ms_max_ever = ttl_ms_max;
        // A state that was restored before may have to stay closed for longer.
        let until = self.state.globals.closed_until.max(Some(self.state.globals.now.after_ms(ttl_ms_max)));
        self.close(until.filter(|_| !restoring.at_once));
        if restoring.at_once {
            // Requests may have waited only because the backup's cluster granted nothing.
            let keys: Vec<LockKey> = self.state.locks.keys().cloned().collect();
            keys.iter().for_each(|key| self.check_queue(key, 0));
        }
        let sessions: Vec<_> = self.state.sessions.keys().copied().collect();
        for id in sessions {
            self.end_session(id, EndReason::Broken);
        }
        self.grant_ready();
        self.state.globals.settings = None;
        self.state.globals.cluster_id = Some(restoring.cluster_id);
        let nodes: Vec<_> = std::mem::take(&mut self.state.nodes).into_keys().collect();
        nodes.into_iter().for_each(|node| self.state.mark(RecordKey::Node(node)));
        self.state.mark(RecordKey::Globals);
        self.events.clear();
        Ok(())
    }

    /// The cluster epoch of new tokens.
    #[must_use]
    pub fn epoch(&self) -> u16 {
        self.state.globals.epoch
    }

    /// How long nothing is granted, in milliseconds; 0 if grants are possible.
    #[must_use]
    pub fn closed_ms(&self) -> u64 {
        self.state.globals.closed_until.map_or(0, |until| until.ms_since(self.state.globals.now))
    }

    /// Grants nothing while log time is at most this.
    fn close(&mut self, until: Option<LogTime>) {
        self.state.index.move_deadline(self.state.globals.closed_until, None, DeadlineOf::Opening);
        self.state.globals.closed_until = until;
        self.state.globals.opening = None;
        self.state.index.move_deadline(None, self.state.globals.closed_until, DeadlineOf::Opening);
    }

    /// After the time without grants, checks a bounded number of queues for grants. The same or the next sweep
    /// continues. Returns the number of queues.
    pub(super) fn open_again(&mut self) -> usize {
        let max = limits::QUEUES_OPENED_AT_ONCE_MAX;
        let from = self.state.globals.opening.take().map_or(Bound::Unbounded, Bound::Included);
        let locks = self.state.locks.range((from, Bound::Unbounded)).take(max + 1);
        let mut keys: Vec<LockKey> = locks.map(|(key, _)| key.clone()).collect();
        let next = if keys.len() <= max { None } else { keys.pop() };
        keys.iter().for_each(|key| self.check_queue(key, 0));
        match next {
            Some(_) => self.state.globals.opening = next,
            None => self.close(None),
        }
        keys.len().max(1)
    }

    /// Whether the time without grants is over, but this lock's queue has not been checked yet.
    pub(super) fn is_yet_to_open(&self, key: &LockKey) -> bool {
        let over = self.state.globals.closed_until.is_some() && !self.is_closed();
        over && self.state.globals.opening.as_ref().is_none_or(|next| next <= key)
    }

    /// Whether nothing may be granted yet after a restore.
    pub(super) fn is_closed(&self) -> bool {
        self.state.globals.closed_until.is_some_and(|until| self.state.globals.now <= until)
    }

    /// Refuses a request while nothing may be granted after a restore.
    pub(super) fn open_for_grants(&self) -> Result<(), Refusal> {
        if self.is_closed() { Err(Refusal::Closed { left_ms: self.closed_ms() }) } else { Ok(()) }
    }
}

const _: () = assert!(limits::TTL_MS_MAX_DEFAULT <= limits::TTL_MS_MAX, "what a restore waits out is bounded");
