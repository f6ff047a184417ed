//! The machine's answers. A refusal is an answer too: the same on every node, and final.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Attachment, BreakReport, FencingToken, LockName, LogTime, Metadata, Mode, Owner, Principal, Refusal, RequestId,
    SessionId,
};

/// An outcome with the place in time and log at which it was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Log index of the entry that decided it.
    pub index: u64,
    /// That entry's stamp: a deadline `E` in the outcome is worth `E - stamp` to the client, counted from before it asked.
    pub stamp: LogTime,
    /// The answer.
    pub outcome: Outcome,
    /// Where it is a grant, or prolonged or attached a session: the tokens of that session's holds that are recalled by then, the
    /// oldest first.
    pub recalled: Vec<FencingToken>,
}

impl Reply {
    /// An answer that names no recalled hold.
    #[must_use]
    pub fn new(index: u64, stamp: LogTime, outcome: Outcome) -> Self {
        Self { index, stamp, outcome, recalled: Vec::new() }
    }
}

/// What became of a command or renewal. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open.
    Opened {
        /// Its public id.
        session: SessionId,
        /// Its TTL as the cluster keeps it.
        ttl_ms: u64,
        /// It ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The session is bound to the stream that asked.
    Attached {
        /// Number of this attachment.
        attachment: Attachment,
        /// It ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The session is closed; also when it had already ended.
    Closed,
    /// Prolonged.
    Renewed {
        /// New end.
        deadline: LogTime,
        /// The client's count, echoed.
        attempt: u64,
        /// The grant's token, where a lease was prolonged.
        token: Option<FencingToken>,
    },
    /// The lock is held by the caller now (or still, when a finished acquire is repeated while held).
    Granted(Grant),
    /// All locks of a set are held by the caller now; or, when it is repeated, those of them that still are. By name.
    GrantedSet(Vec<(LockName, Grant)>),
    /// The caller stands in the queue.
    Queued(Place),
    /// The acquire waited as long as it was asked to.
    TimedOut,
    /// The acquire was cancelled; it holds nothing and waits for nothing.
    Withdrawn,
    /// The hold that this acquire had got has ended since.
    HoldEnded {
        /// How.
        reason: EndReason,
    },
    /// The lock was given back, or once less entered, or some permits of it were given back.
    Released {
        /// How often it is still entered by the same owner, or how many permits are left; 0 where it is no longer held.
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
        /// Under this token.
        token: FencingToken,
        /// Whose request holds it.
        to: RequestId,
    },
    /// Not done, and why.
    Refused(Refusal),
    /// Documents were freed: so many were held.
    Freed {
        /// 0 is a success, too.
        locks: u64,
    },
}

/// A grant, as its holder is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fencing token.
    pub token: FencingToken,
    /// The hold's own end, where it has one besides its session's (token leases).
    pub deadline: Option<LogTime>,
    /// When it ends whatever is renewed, where it asked for that (at most).
    pub ends: Option<LogTime>,
    /// How long it waited in the queue, in milliseconds of log time.
    pub waited_ms: u64,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// For which lock: of a set, the first that it lacks.
    pub lock: LockName,
    /// 1 is next.
    pub place: u64,
    /// Number that the machine handed out; the queue is in its order.
    pub sequence: u64,
    /// One of those who hold the lock, or who stand ahead. Boxed: every answer takes the room of the largest.
    pub held_by: Option<Box<HolderView>>,
}

/// Why something ended. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// Its holder gave it back, or closed its session.
    Released,
    /// Its session or lease ran out.
    Expired,
    /// Its client found its own deadline passed and said so.
    Lost,
    /// It was cancelled.
    Cancelled,
    /// An administrator ended it.
    Broken,
    /// Somebody else was made the holder.
    HandedOver,
    /// Its process gave no sign of life, and another took the lock over.
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

/// What others may know of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// Whose session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Which line of execution.
    pub owner: Option<Owner>,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// The grant's public number.
    pub token: FencingToken,
    /// How it holds.
    pub mode: Mode,
    /// What it says of itself.
    pub metadata: Metadata,
    /// Since when.
    pub since: LogTime,
    /// When it ends if it is not renewed. `None` where only a release ends it.
    pub deadline: Option<LogTime>,
    /// Its session keeps it between uses.
    pub cached: bool,
    /// It is cached, and its session is to give it back after the use that is under way.
    pub recalled: bool,
}
