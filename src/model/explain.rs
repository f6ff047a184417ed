//! Explanations of waits: the answer to [`Query::Explain`](super::Query::Explain).

use serde::{Deserialize, Serialize};

use super::{FencingToken, LockKey, LogTime, Metadata, Mode, Owner, Parent, RequestId, SessionId, WaitReason};

/// The lock, session or request to explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// All requests that wait for this lock.
    Lock(LockKey),
    /// Everything that this session waits for.
    Session(SessionId),
    /// What this request waits for.
    Request(RequestId),
}

/// A chain of waits.
///
/// - The waits that were asked about come in their order. Each is followed by the waits of those that it waits for, if
///   they wait too and were not named before.
/// - The answer is bounded; `more` reports that something was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// The waits, each once.
    pub chain: Vec<ExplainedWait>,
    /// Holds that block any of these waits and whose owners wait for nothing, as far as the cluster knows: when they
    /// end, the chain proceeds. Empty if all are part of a cycle. If no request waits, the holders of the lock.
    pub freed_by: Vec<Obstacle>,
    /// Whether something was left out.
    pub more: bool,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedWait {
    /// The lock that it waits for; for a set, the first lock that it lacks.
    pub lock: LockKey,
    /// Its place in the queue; 1 is next.
    pub place: u64,
    /// Its number in the queue. A set has the same number in each queue.
    pub sequence: u64,
    /// The waiting participant.
    pub waiter: Participant,
    /// The line of execution that waits for it to finish.
    pub parent: Option<Parent>,
    /// The wait ends after this point of log time; `None` waits as long as its session lives.
    pub until: Option<LogTime>,
    /// What blocks it now: holders first, then the nearest requests ahead.
    pub waits_for: Vec<Obstacle>,
}

/// What blocks a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The lock where it blocks.
    pub lock: LockKey,
    /// How it blocks the wait. Never [`WaitReason::Nested`].
    pub why: WaitReason,
    /// Its number in the queue, if it waits ahead.
    pub sequence: Option<u64>,
    /// The blocking participant.
    pub who: Participant,
}

/// A waiter, a holder, or the holder of a hold that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// Its session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Its line of execution.
    pub owner: Option<Owner>,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// The grant's public number, if it holds or held the lock.
    pub token: Option<FencingToken>,
    /// How it holds the lock, or wants to.
    pub mode: Mode,
    /// Since when it holds or waits.
    pub since: LogTime,
    /// Whether its client is known to be alive.
    pub health: Health,
    /// It ends after this point of log time, unless renewed; what an ended hold keeps closed opens then. `None` if only
    /// a release ends it.
    pub ends: Option<LogTime>,
    /// Whether it is a cached hold that its session is to release after the current use.
    pub recalled: bool,
}

/// What the cluster knows about the client behind a hold or a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Its session is renewed in time.
    Live,
    /// Its session was not renewed for more than half its TTL.
    Overdue,
    /// The stream of its session broke and has not come back.
    Disconnected,
    /// It has no session and ends at its deadline.
    Lease,
    /// Its session has ended.
    Gone,
}

impl Health {
    /// The health in one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Health::Live => "live",
            Health::Overdue => "overdue",
            Health::Disconnected => "disconnected",
            Health::Lease => "lease",
            Health::Gone => "gone",
        }
    }
}
