//! Sessions, and what is remembered of requests and of sessions that have ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    EndReason, FencingToken, Handle, Instance, LockKey, LogTime, Metadata, Namespace, Outcome, Principal, Reason,
    SmallMap, WallTime,
};

/// One live session, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Where it lives.
    pub namespace: Namespace,
    /// Its secret.
    pub handle: Handle,
    /// The run of the client that opened it.
    pub instance: Instance,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// What it says of itself.
    pub metadata: Arc<Metadata>,
    /// It ends this long after a renewal.
    pub ttl_ms: u64,
    /// It ends this long after its stream broke, where that is sooner.
    pub disconnect_grace_ms: Option<u64>,
    /// When it was opened.
    pub opened: LogTime,
    /// It lives while log time is at most this.
    pub deadline: LogTime,
    /// How often it was attached.
    pub attachment: u64,
    /// The client's newest attempt at attaching.
    pub attempt: u64,
    /// The newest renewal that was applied, by the client's count; older ones change nothing.
    pub renewal: u64,
    /// Its stream broke and it has not come back.
    pub disconnected: bool,
    /// Its last sign of life: opened, attached or renewed.
    pub renewed: LogTime,
    /// The same by the leader's wall clock, for people.
    pub renewed_wall: WallTime,
    /// What the log had told of leaderless time by then: what came since lengthens its life.
    pub leaderless_ms: u64,
    /// It takes holds that are handed over to it without having asked.
    pub accepts_hand_over: bool,
    /// Request numbers below are never executed any more.
    pub window_floor: u64,
}

/// One live session and what belongs to it.
///
/// - A request number is active or finished, never both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// What is stored of the session itself.
    pub(crate) record: SessionRecord,
    /// Its requests that wait or hold, each with its lock or the locks of its set; derived from locks.
    pub(crate) active: SmallMap<u64, SmallMap<LockKey, ClaimState>>,
    /// How many locks stand there in all.
    pub(crate) locks: usize,
    /// Its finished requests that may be repeated.
    pub(crate) finished: SmallMap<u64, Finished>,
}

/// Whether a claim waits for its lock or holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimState {
    /// In the queue, under this place number.
    Waiting(u64),
    /// Holds it, with this token.
    Holding(FencingToken),
}

/// The remembered answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// What it asked for; `None` where a cancel burnt an unseen number.
    pub fingerprint: Option<u64>,
    /// The answer.
    pub outcome: Outcome,
}

/// What is remembered of an ended session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Where it lived.
    pub namespace: Namespace,
    /// Its secret, so that a late open is told.
    pub handle: Handle,
    /// How it ended.
    pub reason: EndReason,
    /// What the operator said that ended it, if an operator did.
    pub why: Option<Reason>,
    /// Forgotten when log time passes this.
    pub deadline: LogTime,
}

/// What is remembered of a finished take without a session. A live one has no record of its own: its hold or wait has all
/// of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedLease {
    /// Its secret.
    pub handle: Handle,
    /// As in [`Request`](super::Request); `None` where a cancel burnt an unseen take.
    pub fingerprint: Option<u64>,
    /// The answer to a repeated take.
    pub outcome: Outcome,
    /// Forgotten when log time passes this.
    pub forget: LogTime,
}

impl Session {
    /// A session that has asked for nothing yet.
    pub(crate) fn new(record: SessionRecord) -> Self {
        Self { record, active: SmallMap::new(), locks: 0, finished: SmallMap::new() }
    }

    /// Whether both have the same claims.
    pub(super) fn has_claims_of(&self, other: &Self) -> bool {
        (self.locks, &self.active) == (other.locks, &other.active)
    }

    /// Every lock that one of its requests waits for or holds, by request.
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

    /// How many locks its requests wait for or hold. A lock counts once for each of its requests.
    pub(crate) fn locks(&self) -> usize {
        self.locks
    }

    /// Whether this request waits or holds.
    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active.contains_key(&number)
    }

    /// Its own metadata, for a request with equal metadata, as most have: both then share it.
    pub(crate) fn shared_metadata(&self, metadata: &Metadata) -> Option<Arc<Metadata>> {
        let own = &self.record.metadata;
        (**own == *metadata).then(|| Arc::clone(own))
    }

    /// Notes where this request stands now.
    pub(crate) fn add_claim(&mut self, number: u64, key: &LockKey, state: ClaimState) {
        let before = match self.active.get_mut(&number) {
            Some(locks) => locks.insert(key.clone(), state),
            None => self.active.insert(number, (key.clone(), state).into()).and(None),
        };
        self.locks += usize::from(before.is_none());
    }

    /// The request has ended at this lock. Returns whether it waits for no other lock and holds none.
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
