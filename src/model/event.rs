//! Events: what happened to locks, sessions and the cluster, for clients that watch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    Claim, EndReason, FencingToken, Invalid, LockKey, LogTime, Mode, Namespace, Principal, Reason, SessionId, WallTime,
};

/// The position of an event: a log index, and the event's number within that entry. Events are ordered by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Position {
    /// Log index of the entry.
    pub index: u64,
    /// 0 for the entry's first event.
    pub n: u32,
}

impl Position {
    /// Returns a position before all events of the same entry, and after those of earlier entries.
    pub(crate) fn before_entry(self) -> Self {
        Self { index: self.index.saturating_sub(1), n: u32::MAX }
    }
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

/// One event of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The event's position in the log.
    pub position: Position,
    /// Log time of the entry.
    pub at: LogTime,
    /// The leader's wall clock, for display only.
    pub wall: WallTime,
    /// The namespace of the event. `None` if it is about the whole cluster.
    pub namespace: Option<Namespace>,
    /// The lock, session or cluster that the event is about.
    pub subject: Subject,
    /// The kind of event, with its details.
    pub kind: EventKind,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// A lock. Most events are about one of its waiters or holders.
    Lock {
        /// The lock's full name.
        lock: LockKey,
        /// The request that waits or holds. `None` if the event is about the lock itself.
        claim: Option<Claim>,
        /// The token of the grant. `None` for a waiter, and for a change of a semaphore's limit.
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

    /// The session that the event is about, or that waits or holds. `None` for a token lease.
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
        /// The sequence number of the request in the queue.
        sequence: u64,
    },
    /// The request holds the lock.
    Granted {
        /// The mode of the hold.
        mode: Mode,
        /// How long the request was in the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// The request left the queue without a grant.
    WaitEnded {
        /// The sequence number that the request had in the queue.
        sequence: u64,
        /// Why the request left the queue.
        why: WaitEndReason,
    },
    /// A hold was released.
    Released {
        /// How long the hold lasted, in milliseconds of log time.
        held_ms: u64,
    },
    /// A hold ended without its holder's request.
    Expired {
        /// How the hold ended.
        reason: EndReason,
        /// How long the hold lasted, in milliseconds of log time.
        held_ms: u64,
    },
    /// A shared hold was upgraded to exclusive, under a new token. The claim is the request for the upgrade.
    Upgraded {
        /// The token of the shared hold.
        from: FencingToken,
        /// How long the upgrade waited at the head of the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// An exclusive hold was downgraded to shared.
    Downgraded,
    /// A lost hold was resumed within its lock-delay, under a new token.
    Resumed {
        /// The lost grant's token.
        from: FencingToken,
        /// The mode of the hold.
        mode: Mode,
    },
    /// Another client or an operator broke a hold.
    Broken {
        /// The identity of the caller that broke the hold, as the cluster checked it.
        by: Principal,
        /// The caller's reason.
        why: Reason,
        /// How long the hold lasted, in milliseconds of log time.
        held_ms: u64,
    },
    /// The hold was handed over to another session, under a new token.
    HandedOver {
        /// The claim of the previous holder.
        was: Claim,
        /// The token of the grant that ended.
        from: FencingToken,
        /// The mode of the hold.
        mode: Mode,
        /// The identity of the caller that handed the hold over, as the cluster checked it.
        by: Principal,
    },
    /// A caller asked the holder to give up its hold.
    RevokeRequested {
        /// The identity of the caller that asked, as the cluster checked it.
        by: Principal,
        /// The caller's reason.
        why: Reason,
    },
    /// The text of the hold changed. The event does not contain the new text.
    ValueChanged,
    /// The limit of a semaphore was changed or removed.
    LimitChanged {
        /// The new limit. `None` if the limit is removed together with its last user.
        limit: Option<u32>,
    },
    /// A lock-delay is over: what an ended hold kept closed is open again. The token is that of the ended hold.
    Reopened,
    /// A session was opened.
    SessionOpened,
    /// A session has ended.
    SessionEnded {
        /// How the session ended.
        reason: EndReason,
        /// The reason of the operator that ended the session, if an operator did.
        why: Option<Reason>,
    },
    /// The cluster had no leader for a while, and log time stood still.
    LeaderlessGap {
        /// How long the cluster had no leader, as the new leader observed it, in milliseconds.
        gap_ms: u64,
    },
    /// Some permits of a hold were returned; the hold keeps the others.
    PermitsReturned {
        /// How many permits were returned.
        count: u32,
    },
    /// A request waits behind a cached hold, whose session is to release the hold after the current use. This happens
    /// at most once for each hold.
    Recalled,
}

/// Why a request left the queue without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitEndReason {
    /// The request waited as long as it had asked for.
    TimedOut,
    /// The request was cancelled.
    Withdrawn,
    /// The session of the request ended.
    SessionEnded,
    /// The hold that the request was to upgrade has ended.
    HoldEnded,
    /// The semaphore's limit fell below the number of permits that the request wants.
    Impossible,
    /// The request could never be granted, because a later grant closed a cycle of owners that wait for each other.
    Deadlock,
}

impl Event {
    /// Whether a wait for the release of this lock may return after this event, see
    /// [`LockView::free`](super::LockView::free).
    #[must_use]
    pub fn may_free(&self, lock: &LockKey) -> bool {
        let frees = matches!(
            self.kind,
            EventKind::Released { .. } | EventKind::Expired { .. } | EventKind::Broken { .. } | EventKind::Reopened
        );
        frees && self.subject.lock() == Some(lock)
    }
}

impl EventKind {
    /// The event's name in the output of commands and in scripts.
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
