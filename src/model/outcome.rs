//! The machine's answers. A refusal is an answer too: the same on every node, and final.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Attachment, BreakReport, FencingToken, LockName, LogTime, Metadata, Mode, Owner, Principal, Refusal, RequestId,
    SessionId,
};

/// An outcome with the log index and log time at which it was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Log index of the entry that decided it.
    pub index: u64,
    /// The stamp of that entry. A deadline `E` in the outcome leaves the client `E - stamp` from the time before it
    /// sent the request.
    pub stamp: LogTime,
    /// The result of the command or renewal.
    pub outcome: Outcome,
    /// If the outcome is a grant, or prolonged or attached a session: the tokens of that session's recalled holds, in
    /// ascending order. Empty for other outcomes.
    pub recalled: Vec<FencingToken>,
}

impl Reply {
    /// A reply that names no recalled hold.
    #[must_use]
    pub fn new(index: u64, stamp: LogTime, outcome: Outcome) -> Self {
        Self { index, stamp, outcome, recalled: Vec::new() }
    }
}

/// The result of a command or renewal. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open.
    Opened {
        /// The session's public id.
        session: SessionId,
        /// The session's TTL in the cluster, in milliseconds.
        ttl_ms: u64,
        /// The session ends after this point of log time, unless it is renewed.
        deadline: LogTime,
    },
    /// The session is bound to the stream of the caller.
    Attached {
        /// Number of this attachment.
        attachment: Attachment,
        /// The session ends after this point of log time, unless it is renewed.
        deadline: LogTime,
    },
    /// The session is closed, or had already ended.
    Closed,
    /// The session or lease was prolonged.
    Renewed {
        /// The new deadline.
        deadline: LogTime,
        /// The attempt number of the renewal.
        attempt: u64,
        /// The token of the grant, if a lease was prolonged.
        token: Option<FencingToken>,
    },
    /// The caller holds the lock. If a finished acquire is repeated, it still holds the lock.
    Granted(Grant),
    /// The caller holds all locks of a set. If a finished acquire is repeated: those of them that it still holds. In
    /// the order of the names.
    GrantedSet(Vec<(LockName, Grant)>),
    /// The caller waits in the queue.
    Queued(Place),
    /// The acquire waited as long as it had asked for.
    TimedOut,
    /// The acquire was cancelled. It holds nothing and waits for nothing.
    Withdrawn,
    /// The hold that was granted to this acquire has ended.
    HoldEnded {
        /// How the hold ended.
        reason: EndReason,
    },
    /// The lock or some permits were released, or the depth of the hold fell by one.
    Released {
        /// The depth or the permits that remain. 0 if the hold has ended.
        left: u32,
    },
    /// The hold is shared now, under the same token.
    Downgraded,
    /// The command was applied and has no other result.
    Done,
    /// A hold was broken, or would be.
    Broken(Box<BreakReport>),
    /// The hold has a new holder.
    HandedOver {
        /// The token of the new hold.
        token: FencingToken,
        /// The request that holds it.
        to: RequestId,
    },
    /// The command was refused, for this reason.
    Refused(Refusal),
    /// Documents were freed.
    Freed {
        /// How many of the documents were held. 0 is a success, too.
        locks: u64,
    },
}

/// A grant as its holder sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The grant's fencing token.
    pub token: FencingToken,
    /// The hold's own deadline, if it has one in addition to its session's, such as that of a token lease.
    pub deadline: Option<LogTime>,
    /// When the hold ends even if it is renewed, if the request chose an at-most time.
    pub ends: Option<LogTime>,
    /// How long the request waited in the queue, in milliseconds of log time.
    pub waited_ms: u64,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lock for which the request waits. For a set, the first lock that it lacks.
    pub lock: LockName,
    /// The position in the queue, from 1.
    pub place: u64,
    /// The sequence number of the request, which orders the queue.
    pub sequence: u64,
    /// One of the holders, never the hold that the request itself is to upgrade. `None` if only other waiters or an
    /// ended hold block the request. Boxed, because every answer is as large as the largest variant.
    pub held_by: Option<Box<HolderView>>,
}

/// Why a hold or session ended. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// The holder released the hold, or closed its session.
    Released,
    /// The session or lease expired.
    Expired,
    /// The client found that its own deadline had passed, and reported it.
    Lost,
    /// The request was cancelled.
    Cancelled,
    /// Another client or an operator broke the hold or ended the session.
    Broken,
    /// The hold was handed over to another session.
    HandedOver,
    /// The process gave no sign of life, and another process overtook the lock.
    Overtaken,
    /// The at-most time of the request is over, though its session lives.
    TimeOver,
}

impl Outcome {
    /// Whether it is the refusal of a grant that is gone.
    pub(crate) fn hold_is_gone(&self) -> bool {
        matches!(self, Outcome::Refused(refusal) if refusal.hold_is_gone())
    }
}

impl Refusal {
    /// Whether the grant that the caller named is gone: the lock is free, or has another holder.
    pub(crate) fn hold_is_gone(&self) -> bool {
        matches!(self, Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Released => "released",
            EndReason::Expired => "expired",
            EndReason::Lost => "lost",
            EndReason::Cancelled => "cancelled",
            EndReason::Broken => "broken",
            EndReason::HandedOver => "handed over",
            EndReason::Overtaken => "overtaken",
            EndReason::TimeOver => "time over",
        })
    }
}

/// What other clients may see of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// The session of the holder. `None` for a token lease.
    pub session: Option<SessionId>,
    /// The line of execution that made the request, if named.
    pub owner: Option<Owner>,
    /// The holder's identity, as the cluster checked it.
    pub principal: Principal,
    /// The grant's public number.
    pub token: FencingToken,
    /// The mode of the hold.
    pub mode: Mode,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// Log time of the grant.
    pub since: LogTime,
    /// When the hold ends if it is not renewed. `None` if only a release ends it.
    pub deadline: Option<LogTime>,
    /// Whether the hold is cached: its session keeps it between uses.
    pub cached: bool,
    /// Whether the hold is recalled: its session is to release it after the current use.
    pub recalled: bool,
}
