//! Sessions, and the memory of finished requests and ended sessions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    EndReason, FencingToken, Handle, Instance, LockKey, LogTime, Metadata, Namespace, Outcome, Principal, Reason,
    SessionId, SmallMap, WallTime,
};

/// A live session, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// The secret that proves the session.
    pub handle: Handle,
    /// The run of the client that opened the session.
    pub instance: Instance,
    /// The client's identity, as the cluster checked it.
    pub principal: Principal,
    /// What the client states about itself.
    pub metadata: Arc<Metadata>,
    /// The session ends this long after a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// The session ends this long after its stream broke, in milliseconds, if that is earlier than its deadline.
    pub disconnect_grace_ms: Option<u64>,
    /// Log time when it was opened.
    pub opened: LogTime,
    /// The session lives while log time is at most this.
    pub deadline: LogTime,
    /// How many times the session was attached.
    pub attachment: u64,
    /// The client's newest attempt to attach.
    pub attempt: u64,
    /// The newest renewal that was applied, by the client's count. Older ones change nothing.
    pub renewal: u64,
    /// Whether the session's stream broke and the client has not attached again.
    pub disconnected: bool,
    /// When the session was last opened, attached or renewed.
    pub renewed: LogTime,
    /// The time of `renewed` by the leader's wall clock, for display only.
    pub renewed_wall: WallTime,
    /// The value of [`Globals::leaderless_ms`](super::Globals::leaderless_ms) at the time of `renewed`. What is added
    /// to that value afterwards lengthens the session's life.
    pub leaderless_ms: u64,
    /// Whether the session accepts holds that are handed over to it although it did not ask for them.
    pub accepts_hand_over: bool,
    /// Requests with lower numbers are never executed any more. Of those that do not wait or hold, the answers were
    /// received or forgotten.
    pub window_floor: u64,
}

impl SessionRecord {
    /// The name under which the session gives signs of life: that of its process, or its id if it names none.
    pub(super) fn process_name(&self, id: SessionId) -> Arc<str> {
        let process = &self.metadata.process;
        if process.is_empty() { id.to_string().into() } else { Arc::clone(process) }
    }
}

/// A live session with its requests. A request number is active or finished, never both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The stored part of the session.
    pub(crate) record: SessionRecord,
    /// The session's requests that wait or hold, each with its lock or the locks of its set. Derived from the locks.
    pub(crate) active: SmallMap<u64, SmallMap<LockKey, ClaimState>>,
    /// The number of locks in `active`. A lock counts once for each of its requests.
    pub(crate) locks: usize,
    /// The session's finished requests that may be repeated.
    pub(crate) finished: SmallMap<u64, Finished>,
}

/// Whether a claim waits for its lock or holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimState {
    /// The request is in the queue, under this sequence number.
    Waiting(u64),
    /// The request holds the lock, with this token.
    Holding(FencingToken),
}

/// The remembered answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Identifies what the request asked for. `None` if a cancel used up the number before the request arrived.
    pub fingerprint: Option<u64>,
    /// The answer to the request.
    pub outcome: Outcome,
}

/// The memory of an ended session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// The principal of the session: only that principal, and those that read the namespace, learn how it ended.
    pub principal: Principal,
    /// The handle of the session, so that a late open with it is refused.
    pub handle: Handle,
    /// How the session ended.
    pub reason: EndReason,
    /// The reason of the operator that ended it, if an operator did.
    pub why: Option<Reason>,
    /// The tombstone is removed when log time passes this.
    pub deadline: LogTime,
}

/// The memory of a finished take without a session. A live take has no such record: its hold or wait contains
/// everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedLease {
    /// The secret that proves the take.
    pub handle: Handle,
    /// Same as [`Request::fingerprint`](super::Request::fingerprint). `None` if a cancel used up the id before the take
    /// arrived.
    pub fingerprint: Option<u64>,
    /// The answer to a repeated take.
    pub outcome: Outcome,
    /// The record is removed when log time passes this.
    pub forget: LogTime,
}

impl Session {
    pub(crate) fn new(record: SessionRecord) -> Self {
        Self { record, active: SmallMap::new(), locks: 0, finished: SmallMap::new() }
    }

    /// Whether both sessions have the same claims.
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

    /// The session's own metadata if the given one equals it, as for most requests, so that both share one copy.
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

    /// Ends the request's claim to this lock. Returns whether the request neither waits for another lock nor holds one.
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
