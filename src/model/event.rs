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
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// Somebody stands in a queue.
    Queued {
        /// For which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Its number there.
        sequence: u64,
    },
    /// Somebody holds a lock.
    Granted {
        /// Which.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// The grant's token.
        token: FencingToken,
        /// How.
        mode: Mode,
        /// After so long in the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// Somebody no longer waits: its patience, its session or its take ended.
    Left {
        /// Which queue.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Its number there.
        sequence: u64,
        /// Why.
        why: LeaveReason,
    },
    /// A hold was given back.
    Released {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// A hold ended against its holder's will.
    Expired {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
        /// How.
        reason: EndReason,
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// A shared hold has become the only one, under a new token.
    Upgraded {
        /// Which lock.
        lock: LockKey,
        /// The request that asked for it.
        claim: Claim,
        /// The token of the shared hold.
        from: FencingToken,
        /// The new one.
        token: FencingToken,
        /// After so long ahead of the queue, in milliseconds of log time.
        waited_ms: u64,
    },
    /// An exclusive hold is shared now.
    Downgraded {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
    },
    /// A lost hold was taken up within its lock-delay.
    Resumed {
        /// Which lock.
        lock: LockKey,
        /// Who holds it now.
        claim: Claim,
        /// The lost grant.
        from: FencingToken,
        /// The new one.
        token: FencingToken,
        /// How it is held.
        mode: Mode,
    },
    /// A hold was ended from outside.
    Broken {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
        /// By whom, as the cluster checked it.
        by: Principal,
        /// What for.
        why: Reason,
        /// After so long, in milliseconds of log time.
        held_ms: u64,
    },
    /// Another session was made the holder.
    HandedOver {
        /// Which lock.
        lock: LockKey,
        /// Who holds it now.
        claim: Claim,
        /// Who held it before.
        was: Claim,
        /// The grant that ended.
        from: FencingToken,
        /// The new one.
        token: FencingToken,
        /// How it is held.
        mode: Mode,
        /// By whom, as the cluster checked it.
        by: Principal,
    },
    /// A holder is asked to give up its hold.
    RevokeRequested {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
        /// By whom, as the cluster checked it.
        by: Principal,
        /// What for.
        why: Reason,
    },
    /// The text kept with a hold is another one. Ask for the lock to see it.
    ValueChanged {
        /// Which lock.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
    },
    /// A semaphore has another limit, or none of its own any more.
    LimitChanged {
        /// Which semaphore.
        lock: LockKey,
        /// The new one; `None` where it is forgotten with its last user.
        limit: Option<u32>,
    },
    /// A lock-delay is over: what a lost hold kept closed is open again.
    Reopened {
        /// Which lock.
        lock: LockKey,
        /// The lost grant.
        token: FencingToken,
    },
    /// A session is open.
    SessionOpened {
        /// Which.
        session: SessionId,
    },
    /// A session is gone.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// How.
        reason: EndReason,
        /// What the operator said that ended it, if an operator did.
        why: Option<Reason>,
    },
    /// Nobody led for a while; log time stood still.
    LeaderlessGap {
        /// For so long, as far as the new leader could see.
        gap_ms: u64,
    },
    /// Some permits of a hold were given back; it goes on with the others.
    PermitsReturned {
        /// Which semaphore.
        lock: LockKey,
        /// Who.
        claim: Claim,
        /// Which grant.
        token: FencingToken,
        /// How many were given back.
        count: u32,
    },
}

/// Why somebody left a queue without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaveReason {
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
    /// It would have waited for ever: a later grant closed a circle of owners that wait for each other.
    Deadlock,
}

impl EventKind {
    /// The lock that it is about, if any.
    #[must_use]
    pub fn lock(&self) -> Option<&LockKey> {
        match self {
            EventKind::Queued { lock, .. }
            | EventKind::Granted { lock, .. }
            | EventKind::Left { lock, .. }
            | EventKind::Released { lock, .. }
            | EventKind::Upgraded { lock, .. }
            | EventKind::Downgraded { lock, .. }
            | EventKind::PermitsReturned { lock, .. }
            | EventKind::Resumed { lock, .. }
            | EventKind::Reopened { lock, .. }
            | EventKind::Broken { lock, .. }
            | EventKind::HandedOver { lock, .. }
            | EventKind::RevokeRequested { lock, .. }
            | EventKind::ValueChanged { lock, .. }
            | EventKind::LimitChanged { lock, .. }
            | EventKind::Expired { lock, .. } => Some(lock),
            EventKind::SessionOpened { .. } | EventKind::SessionEnded { .. } | EventKind::LeaderlessGap { .. } => None,
        }
    }

    /// Who waited or held, if it is about that.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        match self {
            EventKind::Queued { claim, .. }
            | EventKind::Granted { claim, .. }
            | EventKind::Left { claim, .. }
            | EventKind::Released { claim, .. }
            | EventKind::Upgraded { claim, .. }
            | EventKind::Downgraded { claim, .. }
            | EventKind::PermitsReturned { claim, .. }
            | EventKind::Resumed { claim, .. }
            | EventKind::Broken { claim, .. }
            | EventKind::HandedOver { claim, .. }
            | EventKind::RevokeRequested { claim, .. }
            | EventKind::ValueChanged { claim, .. }
            | EventKind::Expired { claim, .. } => Some(*claim),
            EventKind::LimitChanged { .. }
            | EventKind::Reopened { .. }
            | EventKind::SessionOpened { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => None,
        }
    }

    /// The session that it is about, if any.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            EventKind::SessionOpened { session } | EventKind::SessionEnded { session, .. } => Some(*session),
            EventKind::Queued { .. }
            | EventKind::Granted { .. }
            | EventKind::Left { .. }
            | EventKind::Released { .. }
            | EventKind::Upgraded { .. }
            | EventKind::Downgraded { .. }
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened { .. }
            | EventKind::Broken { .. }
            | EventKind::HandedOver { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged { .. }
            | EventKind::LimitChanged { .. }
            | EventKind::Expired { .. }
            | EventKind::LeaderlessGap { .. } => self.claim().and_then(|claim| claim.session()),
        }
    }

    /// The token that it is about, if any.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            EventKind::Granted { token, .. }
            | EventKind::Released { token, .. }
            | EventKind::Expired { token, .. }
            | EventKind::Upgraded { token, .. }
            | EventKind::Downgraded { token, .. }
            | EventKind::PermitsReturned { token, .. }
            | EventKind::Resumed { token, .. }
            | EventKind::Broken { token, .. }
            | EventKind::HandedOver { token, .. }
            | EventKind::RevokeRequested { token, .. }
            | EventKind::ValueChanged { token, .. }
            | EventKind::Reopened { token, .. } => Some(*token),
            EventKind::Queued { .. }
            | EventKind::Left { .. }
            | EventKind::LimitChanged { .. }
            | EventKind::SessionOpened { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => None,
        }
    }

    /// The event's word, as people and scripts see it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            EventKind::Queued { .. } => "queued",
            EventKind::Granted { .. } => "granted",
            EventKind::Left { .. } => "left",
            EventKind::Released { .. } => "released",
            EventKind::Expired { .. } => "expired",
            EventKind::Upgraded { .. } => "upgraded",
            EventKind::Downgraded { .. } => "downgraded",
            EventKind::PermitsReturned { .. } => "permits-returned",
            EventKind::Resumed { .. } => "resumed",
            EventKind::Reopened { .. } => "reopened",
            EventKind::Broken { .. } => "broken",
            EventKind::HandedOver { .. } => "handed-over",
            EventKind::RevokeRequested { .. } => "revoke-requested",
            EventKind::ValueChanged { .. } => "value-changed",
            EventKind::LimitChanged { .. } => "limit-changed",
            EventKind::SessionOpened { .. } => "session-opened",
            EventKind::SessionEnded { .. } => "session-ended",
            EventKind::LeaderlessGap { .. } => "leaderless-gap",
        }
    }
}
