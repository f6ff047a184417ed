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
    /// That entry's stamp. A deadline `E` in the outcome is worth `E - stamp` to the client, counted from before it
    /// sent the request.
    pub stamp: LogTime,
    /// What became of the command or renewal.
    pub outcome: Outcome,
    /// If it is a grant, or prolonged or attached a session: the tokens of that session's holds that are recalled by
    /// then, the oldest first.
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
        /// The session's TTL as the cluster keeps it.
        ttl_ms: u64,
        /// The session ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The session is bound to the stream that asked.
    Attached {
        /// Number of this attachment.
        attachment: Attachment,
        /// The session ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The session is closed, or had already ended.
    Closed,
    /// The session or lease was prolonged.
    Renewed {
        /// The new deadline.
        deadline: LogTime,
        /// The client's count, repeated from the renewal.
        attempt: u64,
        /// The grant's token, if a lease was prolonged.
        token: Option<FencingToken>,
    },
    /// The caller holds the lock now, or still holds it if a finished acquire is repeated.
    Granted(Grant),
    /// The caller holds all locks of a set now. If a finished acquire is repeated: those of them that it still holds.
    /// By name.
    GrantedSet(Vec<(LockName, Grant)>),
    /// The caller waits in the queue.
    Queued(Place),
    /// The acquire waited as long as it asked for.
    TimedOut,
    /// The acquire was cancelled; it holds nothing and waits for nothing.
    Withdrawn,
    /// The hold that this acquire had been granted has ended since.
    HoldEnded {
        /// How it ended.
        reason: EndReason,
    },
    /// The lock or some permits were released, or the depth of the hold fell by one.
    Released {
        /// The remaining depth of the hold or its remaining permits; 0 if it is no longer held.
        left: u32,
    },
    /// The hold is shared now, under the same token.
    Downgraded,
    /// Applied; there is no result.
    Done,
    /// A hold was broken, or would be.
    Broken(Box<BreakReport>),
    /// A hold has another holder now.
    HandedOver {
        /// The token of the new hold.
        token: FencingToken,
        /// The request that holds it.
        to: RequestId,
    },
    /// The command was not done, for this reason.
    Refused(Refusal),
    /// Documents were freed.
    Freed {
        /// How many of them were held. 0 is a success, too.
        locks: u64,
    },
}

/// A grant as its holder sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The grant's fencing token.
    pub token: FencingToken,
    /// The hold's own deadline, if it has one besides its session's (token leases).
    pub deadline: Option<LogTime>,
    /// When it ends even if it is renewed, if the request asked for a longest time.
    pub ends: Option<LogTime>,
    /// How long it waited in the queue, in milliseconds of log time.
    pub waited_ms: u64,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lock that it waits for; for a set, the first lock that it lacks.
    pub lock: LockName,
    /// The position in the queue; 1 is next.
    pub place: u64,
    /// The number that the machine gave to the request. The queue is ordered by it.
    pub sequence: u64,
    /// One of the holders, or of the requests ahead. Boxed, because every answer is as large as the largest variant.
    pub held_by: Option<Box<HolderView>>,
}

/// Why something ended. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// Its holder released it, or closed its session.
    Released,
    /// Its session or lease expired.
    Expired,
    /// Its client found that its own deadline had passed, and reported it.
    Lost,
    /// Its request was cancelled.
    Cancelled,
    /// An administrator ended it.
    Broken,
    /// Another session was made the holder.
    HandedOver,
    /// Its process gave no sign of life, and another process overtook the lock.
    Overtaken,
    /// The longest time that its request asked for is over, though its session lives.
    TimeOver,
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
    /// Its session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Its line of execution.
    pub owner: Option<Owner>,
    /// The holder's identity, as the cluster checked it.
    pub principal: Principal,
    /// The grant's public number.
    pub token: FencingToken,
    /// How it holds the lock.
    pub mode: Mode,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// Log time of the grant.
    pub since: LogTime,
    /// When it ends if it is not renewed. `None` if only a release ends it.
    pub deadline: Option<LogTime>,
    /// Whether its session keeps it between uses.
    pub cached: bool,
    /// Whether it is cached, and its session is to release it after the current use.
    pub recalled: bool,
}
