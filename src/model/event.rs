//! What happened, for those who watch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    Claim, EndReason, FencingToken, Invalid, LockKey, LogTime, Mode, Namespace, Principal, Reason, SessionId, WallTime,
};

/// Where an event stands: log index, and its count within that entry. Events are ordered by it, without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Position {
    /// Log index of the entry.
    pub index: u64,
    /// 0 for the entry's first event.
    pub n: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.n)
    }
}

impl FromStr for Position {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("position", "INDEX.N", format!("{text:?}"));
        let (index, n) = text.split_once('.').ok_or_else(refused)?;
        Ok(Self { index: index.parse().map_err(|_| refused())?, n: n.parse().map_err(|_| refused())? })
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Where it stands.
    pub position: Position,
    /// Log time of the entry.
    pub at: LogTime,
    /// The leader's wall clock, for people.
    pub wall: WallTime,
    /// Whose; `None` for what concerns the whole cluster.
    pub namespace: Option<Namespace>,
    /// What it is about.
    pub subject: Subject,
    /// What happened.
    pub kind: EventKind,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// A lock, mostly one of its waiters or holders.
    Lock {
        /// The lock's full name.
        lock: LockKey,
        /// The request that waits or holds; `None` where the event is about the lock itself.
        claim: Option<Claim>,
        /// The token of the grant; `None` for a waiter, and for a change of a semaphore's limit.
        token: Option<FencingToken>,
    },
    /// A session as a whole.
    Session(SessionId),
    /// The whole cluster.
    Cluster,
}

impl Subject {
    /// A request in the queue of this lock.
    #[must_use]
    pub fn wait(lock: &LockKey, claim: Claim) -> Self {
        Self::Lock { lock: lock.clone(), claim: Some(claim), token: None }
    }

    /// A hold of this lock.
    #[must_use]
    pub fn hold(lock: &LockKey, claim: Claim, token: FencingToken) -> Self {
        Self::Lock { lock: lock.clone(), claim: Some(claim), token: Some(token) }
    }

    /// The lock that the event is about, if any.
    #[must_use]
    pub fn lock(&self) -> Option<&LockKey> {
        match self {
            Subject::Lock { lock, .. } => Some(lock),
            Subject::Session(_) | Subject::Cluster => None,
        }
    }

    /// The request that waits or holds, if the event is about one.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        match self {
            Subject::Lock { claim, .. } => *claim,
            Subject::Session(_) | Subject::Cluster => None,
        }
    }

    /// The token that the event is about, if any.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            Subject::Lock { token, .. } => *token,
            Subject::Session(_) | Subject::Cluster => None,
        }
    }

    /// The session that the event is about, or that waits or holds; `None` for a token lease.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Subject::Lock { claim, .. } => claim.and_then(|claim| claim.session()),
            Subject::Session(session) => Some(*session),
            Subject::Cluster => None,
        }
    }
}

/// What happened to an event's subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The request joined the queue.
    Queued {
        /// Its number in the queue.
        sequence: u64,
    },
    /// The request holds the lock.
    Granted {
        /// How it holds the lock.
        mode: Mode,
        /// After so long in the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// The request waits no longer: its patience, its session or its take ended.
    WaitEnded {
        /// Its number in the queue.
        sequence: u64,
        /// Why it left.
        why: WaitEndReason,
    },
    /// A hold was given back.
    Released {
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// A hold ended against its holder's will.
    Expired {
        /// How it ended.
        reason: EndReason,
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// A shared hold has become the only one, under a new token. The claim is the request that asked for it.
    Upgraded {
        /// The token of the shared hold.
        from: FencingToken,
        /// After so long ahead of the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// An exclusive hold is shared now.
    Downgraded,
    /// A lost hold was taken up within its lock-delay, under a new token.
    Resumed {
        /// The lost grant's token.
        from: FencingToken,
        /// How the lock is held.
        mode: Mode,
    },
    /// A hold was ended from outside.
    Broken {
        /// The caller that broke it, as the cluster checked it.
        by: Principal,
        /// The caller's reason.
        why: Reason,
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// Another session was made the holder, under a new token.
    HandedOver {
        /// The holder before.
        was: Claim,
        /// The token of the grant that ended.
        from: FencingToken,
        /// How the lock is held.
        mode: Mode,
        /// The caller that handed it over, as the cluster checked it.
        by: Principal,
    },
    /// A holder is asked to give up its hold.
    RevokeRequested {
        /// The caller that asks, as the cluster checked it.
        by: Principal,
        /// The caller's reason.
        why: Reason,
    },
    /// The text kept with a hold is another one. Ask for the lock to see it.
    ValueChanged,
    /// A semaphore has another limit, or none of its own any more.
    LimitChanged {
        /// The new one; `None` where it is forgotten with its last user.
        limit: Option<u32>,
    },
    /// A lock-delay is over: what a lost hold kept closed is open again. The token is the lost grant's.
    Reopened,
    /// A session is open.
    SessionOpened,
    /// A session is gone.
    SessionEnded {
        /// How it ended.
        reason: EndReason,
        /// The reason of the operator that ended it, if an operator did.
        why: Option<Reason>,
    },
    /// No node led for a while; log time stood still.
    LeaderlessGap {
        /// For so long, as far as the new leader could see.
        gap_ms: u64,
    },
    /// Some permits of a hold were given back; it goes on with the others.
    PermitsReturned {
        /// How many were given back.
        count: u32,
    },
    /// A cached hold is to be given back after the use that is under way: a request waits behind it. Once for each hold.
    Recalled,
}

/// Why somebody left a queue without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitEndReason {
    /// It waited as long as it was asked to.
    TimedOut,
    /// It was cancelled.
    Withdrawn,
    /// Its session ended.
    SessionEnded,
    /// The hold that it was to upgrade has ended.
    HoldEnded,
    /// The semaphore's limit fell below what it asked for.
    Impossible,
    /// It would have waited for ever: a later grant closed a cycle of owners that wait for each other.
    Deadlock,
}

impl Event {
    /// Whether a wait for this lock may return after it.
    #[must_use]
    pub fn may_free(&self, lock: &LockKey) -> bool {
        self.kind.may_free() && self.subject.lock() == Some(lock)
    }
}

impl EventKind {
    /// Whether a wait for the lock that it is about may return after it, see [`LockView::free`](super::LockView::free).
    fn may_free(&self) -> bool {
        matches!(
            self,
            EventKind::Released { .. } | EventKind::Expired { .. } | EventKind::Broken { .. } | EventKind::Reopened
        )
    }

    /// The event's word, as people and scripts see it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            EventKind::Queued { .. } => "queued",
            EventKind::Granted { .. } => "granted",
            EventKind::WaitEnded { .. } => "left",
            EventKind::Released { .. } => "released",
            EventKind::Expired { .. } => "expired",
            EventKind::Upgraded { .. } => "upgraded",
            EventKind::Downgraded => "downgraded",
            EventKind::PermitsReturned { .. } => "permits-returned",
            EventKind::Resumed { .. } => "resumed",
            EventKind::Reopened => "reopened",
            EventKind::Broken { .. } => "broken",
            EventKind::HandedOver { .. } => "handed-over",
            EventKind::RevokeRequested { .. } => "revoke-requested",
            EventKind::ValueChanged => "value-changed",
            EventKind::LimitChanged { .. } => "limit-changed",
            EventKind::SessionOpened => "session-opened",
            EventKind::SessionEnded { .. } => "session-ended",
            EventKind::LeaderlessGap { .. } => "leaderless-gap",
            EventKind::Recalled => "recalled",
        }
    }
}
