//! Sessions, and the memory of finished requests and ended sessions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    EndReason, FencingToken, Handle, Instance, LockKey, LogTime, Metadata, Namespace, Outcome, Principal, Reason,
    SmallMap, WallTime,
};

/// One live session, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// The secret that proves it.
    pub handle: Handle,
    /// The run of the client that opened it.
    pub instance: Instance,
    /// The client's identity, as the cluster checked it.
    pub principal: Principal,
    /// What the client states about itself.
    pub metadata: Arc<Metadata>,
    /// It ends this long after a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// It ends this long after its stream broke, in milliseconds, if that is earlier.
    pub disconnect_grace_ms: Option<u64>,
    /// Log time when it was opened.
    pub opened: LogTime,
    /// It lives while log time is at most this.
    pub deadline: LogTime,
    /// How many times it was attached.
    pub attachment: u64,
    /// The client's newest attempt to attach.
    pub attempt: u64,
    /// The newest renewal that was applied, by the client's count; older ones change nothing.
    pub renewal: u64,
    /// Whether its stream broke and has not come back.
    pub disconnected: bool,
    /// When it was last opened, attached or renewed.
    pub renewed: LogTime,
    /// The same by the leader's wall clock, for display only.
    pub renewed_wall: WallTime,
    /// The value of [`Globals::leaderless_ms`](super::Globals::leaderless_ms) at that time. What is added to that value
    /// since lengthens the session's life.
    pub leaderless_ms: u64,
    /// Whether it accepts holds that are handed over to it although it did not ask for them.
    pub accepts_hand_over: bool,
    /// Requests with lower numbers are never executed any more.
    pub window_floor: u64,
}

/// One live session with its requests.
///
/// - A request number is active or finished, never both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The stored part of the session.
    pub(crate) record: SessionRecord,
    /// Its requests that wait or hold, each with its lock or the locks of its set; derived from locks.
    pub(crate) active: SmallMap<u64, SmallMap<LockKey, ClaimState>>,
    /// The number of locks in `active`, over all requests.
    pub(crate) locks: usize,
    /// Its finished requests that may be repeated.
    pub(crate) finished: SmallMap<u64, Finished>,
}

/// Whether a claim waits for its lock or holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimState {
    /// It is in the queue, under this sequence number.
    Waiting(u64),
    /// It holds the lock, with this token.
    Holding(FencingToken),
}

/// The remembered answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Identifies what it asked for; `None` if a cancel used up a number that was not seen.
    pub fingerprint: Option<u64>,
    /// The answer to the request.
    pub outcome: Outcome,
}

/// The memory of an ended session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// Its handle, so that a late open with it is refused.
    pub handle: Handle,
    /// How it ended.
    pub reason: EndReason,
    /// The reason of the operator that ended it, if an operator did.
    pub why: Option<Reason>,
    /// Forgotten when log time passes this.
    pub deadline: LogTime,
}

/// The memory of a finished take without a session. A live take has no such record: its hold or wait contains
/// everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedLease {
    /// The secret that proves it.
    pub handle: Handle,
    /// As in [`Request::fingerprint`](super::Request::fingerprint); `None` if a cancel used up a take that was not
    /// seen.
    pub fingerprint: Option<u64>,
    /// The answer to a repeated take.
    pub outcome: Outcome,
    /// Forgotten when log time passes this.
    pub forget: LogTime,
}

impl Session {
    /// A session without requests.
    pub(crate) fn new(record: SessionRecord) -> Self {
        Self { record, active: SmallMap::new(), locks: 0, finished: SmallMap::new() }
    }

    /// Whether both have the same claims.
    pub(super) fn has_claims_of(&self, other: &Self) -> bool {
        (self.locks, &self.active) == (other.locks, &other.active)
    }

    /// Every lock that one of its requests waits for or holds, with the number of the request.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (u64, &LockKey, ClaimState)> {
        self.active.iter().flat_map(|(number, locks)| locks.iter().map(move |(key, state)| (*number, key, *state)))
    }

    /// The locks that this request waits for or holds.
    pub(crate) fn claims_of(&self, number: u64) -> impl Iterator<Item = (&LockKey, ClaimState)> {
        self.active.get(&number).into_iter().flatten().map(|(key, state)| (key, *state))
    }

    /// Whether more than one of its requests waits or holds.
    pub(crate) fn has_several(&self) -> bool {
        1 < self.active.len()
    }

    /// The number of locks that its requests wait for or hold. A lock counts once for each of its requests.
    pub(crate) fn locks(&self) -> usize {
        self.locks
    }

    /// Whether this request waits or holds.
    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active.contains_key(&number)
    }

    /// The session's own metadata if the given one equals it, as for most requests. Both then share it.
    pub(crate) fn shared_metadata(&self, metadata: &Metadata) -> Option<Arc<Metadata>> {
        let own = &self.record.metadata;
        (**own == *metadata).then(|| Arc::clone(own))
    }

    /// Records the new state of this request's claim.
    pub(crate) fn add_claim(&mut self, number: u64, key: &LockKey, state: ClaimState) {
        let before = match self.active.get_mut(&number) {
            Some(locks) => locks.insert(key.clone(), state),
            None => self.active.insert(number, (key.clone(), state).into()).and(None),
        };
        self.locks += usize::from(before.is_none());
    }

    /// Ends the request's claim to this lock. Returns whether it waits for no other lock and holds none.
    pub(super) fn remove_claim(&mut self, number: u64, key: &LockKey) -> bool {
        let Some(locks) = self.active.get_mut(&number) else { return true };
        self.locks -= usize::from(locks.remove(key).is_some());
        let over = locks.is_empty();
        if over {
            self.active.remove(&number);
        }
        over
    }
}
