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
/// - The waits of the subject come first, in their order. Each is followed by the waits of the requests that block it,
///   unless they were listed before.
/// - The answer is bounded; `more` reports that something was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// The waits, each once.
    pub chain: Vec<ExplainedWait>,
    /// Holds that block any of these waits and whose owners wait for nothing that the cluster knows. When they end, the
    /// chain proceeds. Empty if all of them are part of a cycle. If no request waits, the holders of the lock.
    pub freed_by: Vec<Obstacle>,
    /// Whether something was left out.
    pub more: bool,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedWait {
    /// The lock for which the request waits. For a set, the first lock that it lacks.
    pub lock: LockKey,
    /// The position in the queue, from 1.
    pub place: u64,
    /// The sequence number of the request. A set has the same number in each queue.
    pub sequence: u64,
    /// The waiting participant.
    pub waiter: Participant,
    /// The line of execution that waits until this one finishes.
    pub parent: Option<Parent>,
    /// The wait ends after this point of log time. `None` if it lasts as long as its session lives.
    pub until: Option<LogTime>,
    /// What blocks the wait now: holders first, then the nearest requests ahead.
    pub waits_for: Vec<Obstacle>,
}

/// What blocks a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The lock at which it blocks the wait.
    pub lock: LockKey,
    /// How it blocks the wait. Never [`WaitReason::Nested`].
    pub why: WaitReason,
    /// Its sequence number, if it waits ahead in the queue.
    pub sequence: Option<u64>,
    /// The blocking participant.
    pub who: Participant,
}

/// A waiter, a holder, or the holder of a hold that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// The session of the participant. `None` for a token lease.
    pub session: Option<SessionId>,
    /// The line of execution, if the request named one.
    pub owner: Option<Owner>,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// The grant's public number, if it holds or held the lock.
    pub token: Option<FencingToken>,
    /// The mode in which it holds the lock or wants to hold it.
    pub mode: Mode,
    /// Log time from which it holds or waits.
    pub since: LogTime,
    /// Whether its client is known to be alive.
    pub health: Health,
    /// The hold or wait ends after this point of log time, unless it is renewed. For an ended hold, the time when what
    /// it keeps closed opens. `None` if only a release ends it.
    pub ends: Option<LogTime>,
    /// Whether it is a recalled hold: a cached hold that its session is to release after the current use.
    pub recalled: bool,
}

/// What the cluster knows about the client behind a hold or a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// The session is renewed in time.
    Live,
    /// The session was not renewed for more than half its TTL.
    Overdue,
    /// The stream of the session broke, and the client has not attached again.
    Disconnected,
    /// There is no session. The hold or wait ends at its own deadline.
    Lease,
    /// The session has ended.
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
