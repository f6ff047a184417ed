//! A state that was restored from a backup: what of it goes on, and what must not.
//!
//! Whatever was granted after the backup was made is not known here, and may still be believed. So every session ends,
//! tokens and session ids go on where nothing before could have come, and nothing is granted for the longest time that
//! an unknown grant can last.

use std::ops::Bound;

use super::expiry::DeadlineOf;
use super::{Machine, RecordKey};
use crate::limits;
use crate::model::{EndReason, LockKey, Refusal, Restoring};

impl Machine {
    /// Turns the state of a backup into the beginning of a new cluster's, as of the log position after its last.
    ///
    /// - Every session has ended; leases and documents, which name no session, are as they were.
    /// - No token or session id that follows was ever handed out: the epoch is larger, and so is the counter's start.
    /// - The cluster has the id that was drawn for it. No node is known, and no settings are: the first leader sets its own.
    pub fn restore(&mut self, restoring: Restoring) {
        let ttl_ms_max = self.ttl_ms_bounds().1.max(self.globals.ttl_ms_max_ever).max(restoring.ttl_ms_max);
        self.globals.applied += 1;
        self.globals.wall = self.globals.wall.max(restoring.wall);
        self.globals.epoch = restoring.epoch_after(self.globals.epoch);
        self.globals.tokens = restoring.counter();
        self.globals.sessions = restoring.counter();
        self.close(if restoring.at_once { 0 } else { ttl_ms_max });
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        for id in sessions {
            self.end_session(id, EndReason::Broken);
        }
        self.grant_ready();
        self.globals.settings = None;
        self.globals.cluster_id = Some(restoring.cluster_id);
        let nodes: Vec<_> = std::mem::take(&mut self.nodes).into_keys().collect();
        nodes.into_iter().for_each(|node| self.mark_dirty(RecordKey::Node(node)));
        self.mark_dirty(RecordKey::Globals);
        self.events.clear();
    }

    /// The cluster epoch of new tokens.
    #[must_use]
    pub fn epoch(&self) -> u16 {
        self.globals.epoch
    }

    /// For how long nothing is granted, in milliseconds; 0 where grants come.
    #[must_use]
    pub fn closed_ms(&self) -> u64 {
        self.globals.closed_until.map_or(0, |until| until.ms_since(self.globals.now))
    }

    /// Grants nothing for so long.
    fn close(&mut self, ms: u64) {
        self.move_deadline(self.globals.closed_until, None, DeadlineOf::Opening);
        self.globals.closed_until = (ms != 0).then(|| self.globals.now.after_ms(ms));
        self.globals.opening = None;
        self.move_deadline(None, self.globals.closed_until, DeadlineOf::Opening);
    }

    /// The time is over: looks at a bounded number of queues, and goes on in the same or the next sweep. Returns how many.
    pub(super) fn open_again(&mut self) -> usize {
        let max = limits::QUEUES_OPENED_AT_ONCE_MAX;
        let from = self.globals.opening.take().map_or(Bound::Unbounded, Bound::Included);
        let locks = self.locks.range((from, Bound::Unbounded)).take(max + 1);
        let mut keys: Vec<LockKey> = locks.map(|(key, _)| key.clone()).collect();
        let next = if keys.len() <= max { None } else { keys.pop() };
        keys.iter().for_each(|key| self.check_queue(key, 0));
        match next {
            Some(_) => self.globals.opening = next,
            None => self.close(0),
        }
        keys.len().max(1)
    }

    /// Whether the time without grants is over, but this lock's queue was not looked at yet.
    pub(super) fn is_yet_to_open(&self, key: &LockKey) -> bool {
        let over = self.globals.closed_until.is_some() && !self.is_closed();
        over && self.globals.opening.as_ref().is_none_or(|next| next <= key)
    }

    /// Whether nothing may be granted at all.
    pub(super) fn is_closed(&self) -> bool {
        self.globals.closed_until.is_some_and(|until| self.globals.now <= until)
    }

    /// Refuses while nothing may be granted.
    pub(super) fn open_for_grants(&self) -> Result<(), Refusal> {
        if self.is_closed() { Err(Refusal::Closed { left_ms: self.closed_ms() }) } else { Ok(()) }
    }
}

const _: () = assert!(limits::TTL_MS_MAX_DEFAULT <= limits::TTL_MS_MAX, "what a restore waits out is bounded");
