//! What the machine remembers: its counters, locks, sessions and takes. Plain data; the rules are in the other files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    Claim, ClusterSettings, EndReason, FencingToken, Handle, HolderView, Instance, Kind, LockKey, LogTime, Metadata,
    Mode, Namespace, Outcome, Owner, Principal, SessionId, TakeId, WallTime,
};

/// Counters that only grow, log time, and the cluster's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Globals {
    /// Log index of the newest applied entry.
    pub applied: u64,
    /// Log time: the newest stamp.
    pub now: LogTime,
    /// Wall clock of the newest stamp.
    pub wall: WallTime,
    /// Cluster epoch of new tokens and session ids.
    pub epoch: u16,
    /// Counter of the newest fencing token.
    pub tokens: u64,
    /// Counter of the newest session.
    pub sessions: u64,
    /// Newest place number handed out in any queue.
    pub sequences: u64,
    /// Every build that may run supports this level: commands above it are not proposed. 0 where it was never raised.
    pub feature_level: u32,
    /// Agreed on by the cluster's first leader.
    pub settings: Option<ClusterSettings>,
}

/// One who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// A session's request, or a take.
    pub claim: Claim,
    /// The line of execution, if named.
    pub owner: Option<Owner>,
    /// How it holds.
    pub mode: Mode,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// What it says of itself.
    pub metadata: Arc<Metadata>,
    /// Since when.
    pub since: LogTime,
    /// How long it waited before, in milliseconds.
    pub waited_ms: u64,
    /// Tells a repeated request from another one with the same number.
    pub fingerprint: u64,
    /// The lease's secret and end, for a take.
    pub lease: Option<Lease>,
}

/// What proves and ends a token lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The secret.
    pub handle: Handle,
    /// Held while log time is at most this.
    pub deadline: LogTime,
    /// The newest refresh that was applied, by its caller's count; older ones change nothing.
    pub attempt: u64,
}

/// One who stands in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// A session's request, or a take.
    pub claim: Claim,
    /// The line of execution, if named.
    pub owner: Option<Owner>,
    /// How it wants the lock.
    pub mode: Mode,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// What it says of itself.
    pub metadata: Arc<Metadata>,
    /// Since when.
    pub since: LogTime,
    /// It waits while log time is at most this; `None` waits as long as its session lives.
    pub deadline: Option<LogTime>,
    /// As in [`Holder`].
    pub fingerprint: u64,
    /// For a take: its secret and how long it wants to hold, in milliseconds.
    pub lease: Option<(Handle, u64)>,
}

/// One lock in use. A lock that nobody holds or waits for has no record at all.
///
/// - An exclusive holder is the only holder; shared holders hold together; permits in use never exceed the limit.
/// - The head of the queue can't be granted, or it would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Fixed by the first acquire of the free name.
    pub kind: Kind,
    /// A semaphore's permits.
    pub limit: Option<u32>,
    /// In the order of their grants.
    pub holders: BTreeMap<FencingToken, Holder>,
    /// By place number: first come, first served.
    pub queue: BTreeMap<u64, Waiter>,
    /// Permits in use; derived from the holders.
    pub permits_held: u64,
    /// Takes by their secret; derived from holders and queue.
    pub takes: BTreeMap<Handle, TakeId>,
}

impl Lock {
    /// A lock that nobody holds yet.
    pub(super) fn new(kind: Kind, limit: Option<u32>) -> Self {
        Self { kind, limit, holders: BTreeMap::new(), queue: BTreeMap::new(), permits_held: 0, takes: BTreeMap::new() }
    }

    /// Whether nobody holds it or waits for it.
    pub(super) fn is_free(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether this mode can be held beside the present holders.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => self.holders.values().next().is_none_or(|holder| holder.mode == Mode::Shared),
            Mode::Permits { count, .. } => {
                self.permits_held + u64::from(count) <= u64::from(self.limit.unwrap_or_default())
            }
        }
    }
}

/// The kind of lock that a mode asks for.
pub(super) fn kind_of(mode: Mode) -> Kind {
    match mode {
        Mode::Exclusive | Mode::Shared => Kind::Lock,
        Mode::Permits { .. } => Kind::Semaphore,
    }
}

/// Permits that a mode uses up; 0 for a lock.
pub(super) fn permits_of(mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive | Mode::Shared => 0,
        Mode::Permits { count, .. } => u64::from(count),
    }
}

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
    /// Request numbers below are never executed any more.
    pub floor: u64,
}

/// One live session and what belongs to it.
///
/// - A request number is live or finished, never both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What is stored of the session itself.
    pub record: SessionRecord,
    /// Its requests that wait or hold; derived from locks.
    pub live: BTreeMap<u64, (LockKey, Standing)>,
    /// Its finished requests that may be repeated.
    pub finished: BTreeMap<u64, Finished>,
}

/// How a claim stands with its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// In the queue, under this place number.
    Waits(u64),
    /// Holds it, with this token.
    Holds(FencingToken),
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
    /// Forgotten when log time passes this.
    pub deadline: LogTime,
}

/// What is remembered of a sessionless take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Its secret.
    pub handle: Handle,
    /// As in [`Holder`]; `None` where a cancel burnt an unseen take.
    pub fingerprint: Option<u64>,
    /// Waiting or holding; or, once it ended, the answer and when it is forgotten.
    pub state: TakeState,
}

/// See [`Take`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeState {
    /// It waits or holds.
    Live(Standing),
    /// It is over.
    Over {
        /// What a repeated take is told.
        outcome: Outcome,
        /// Forgotten when log time passes this.
        forget: LogTime,
    },
}

/// How much of a namespace's quotas is used; derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Live sessions and tombstones.
    pub sessions: u64,
    /// Locks in use.
    pub locks: u64,
    /// Takes that wait or hold, and remembered ones.
    pub takes: u64,
    /// Waiters.
    pub waiters: u64,
}

impl Holder {
    /// What others may know of it; `session_deadline` is its session's, where it has one.
    pub(super) fn view(&self, token: FencingToken, session_deadline: Option<LogTime>) -> HolderView {
        let lease_deadline = self.lease.as_ref().map(|lease| lease.deadline);
        HolderView {
            session: self.claim.session(),
            owner: self.owner.clone(),
            principal: self.principal.clone(),
            token,
            mode: self.mode,
            metadata: (*self.metadata).clone(),
            since: self.since,
            deadline: lease_deadline.or(session_deadline).unwrap_or(LogTime(u64::MAX)),
        }
    }
}

/// The session's id behind a claim's request, for lookups.
pub(super) fn request_of(claim: Claim) -> Option<(SessionId, u64)> {
    match claim {
        Claim::Request(request) => Some((request.session, request.number)),
        Claim::Take(_) => None,
    }
}
