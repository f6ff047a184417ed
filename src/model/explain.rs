//! Who waits for whom, and why: the answer to [`Query::Explain`](super::Query::Explain).

use serde::{Deserialize, Serialize};

use super::{FencingToken, LockKey, LogTime, Metadata, Mode, Owner, Parent, RequestId, SessionId, WaitReason};

/// What is to be explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// Everybody who waits for this lock.
    Lock(LockKey),
    /// Everything that this session waits for.
    Session(SessionId),
    /// What this request waits for.
    Request(RequestId),
}

/// Who waits for whom.
///
/// - The waits that were asked about come in their order, each followed by those that it waits for, as far as they wait
///   themselves and were not named before.
/// - Bounded: what is left out is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// The waits, each once.
    pub chain: Vec<ExplainedWait>,
    /// Holds in the way of any of them whose owners wait for nothing, as far as the cluster knows: their end sets the chain
    /// going. None where nobody waits but in a cycle. Where nobody waits at all, the holders of the lock.
    pub freed_by: Vec<Obstacle>,
    /// Something was left out.
    pub more: bool,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedWait {
    /// For which lock: of a set, the first that it lacks.
    pub lock: LockKey,
    /// Its place there; 1 is next.
    pub place: u64,
    /// Its number in the queue: a set has the same in each.
    pub sequence: u64,
    /// Who.
    pub waiter: Participant,
    /// Who waits for it to finish.
    pub parent: Option<Parent>,
    /// It gives up after this point of log time; `None` waits as long as its session lives.
    pub until: Option<LogTime>,
    /// What stands in its way now: holders first, then the nearest ahead.
    pub waits_for: Vec<Obstacle>,
}

/// What stands in somebody's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// At which lock.
    pub lock: LockKey,
    /// How. Never [`WaitReason::Nested`].
    pub why: WaitReason,
    /// Its number in the queue, where it stands ahead.
    pub sequence: Option<u64>,
    /// Who.
    pub who: Participant,
}

/// Who waits, holds, or has lost a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// Whose session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Which line of execution.
    pub owner: Option<Owner>,
    /// What it says of itself.
    pub metadata: Metadata,
    /// The grant's public number, where it holds or held.
    pub token: Option<FencingToken>,
    /// How it holds, or wants to.
    pub mode: Mode,
    /// Since when it holds or waits.
    pub since: LogTime,
    /// How sure it is that somebody is there.
    pub health: Health,
    /// It ends after this point of log time, unless renewed; what an ended hold keeps closed opens then. `None` where only a
    /// release ends it.
    pub ends: Option<LogTime>,
    /// It is a cached hold, and its session is to give it back after the use that is under way.
    pub recalled: bool,
}

/// What the cluster knows of the life behind a hold or a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Its session is renewed as it should be.
    Live,
    /// Its session has given no sign of life for more than half its TTL.
    Overdue,
    /// Its session's stream broke and has not come back.
    Disconnected,
    /// It has no session: it ends by itself.
    Lease,
    /// Its session is gone.
    Gone,
}

impl Health {
    /// In one word.
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
