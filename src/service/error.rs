//! What can go wrong between a caller and the log, sorted by what the caller may do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error_table::{Advice, ErrorCode};
use crate::model::{Invalid, Position, Refusal};

/// Why a service could not answer. "I do not know whether it happened" is never folded into "it did not happen".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ServiceError {
    /// It was not sent, and never will be: repeat it freely.
    #[error("not sent: {why}{}", hint(.leader))]
    NotSent {
        /// Why.
        why: NotSent,
        /// Who to ask instead, where that is known.
        leader: Option<LeaderHint>,
    },
    /// It may have happened: repeat it with the same request number, or ask what became of it.
    #[error("outcome unknown: {why}{}", hint(.leader))]
    Unknown {
        /// What broke.
        why: String,
        /// Who to ask, where that is known.
        leader: Option<LeaderHint>,
    },
    /// A value was out of bounds; nothing reached the log.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The machine refused; the answer is final.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller may not do that.
    #[error("not permitted: {why}")]
    Forbidden {
        /// What is missing.
        why: String,
    },
    /// Events before this position are no longer kept, or a slow reader was cut here: go on from `resume`.
    #[error("events were missed: {why}; go on from {resume}")]
    EventsMissed {
        /// What happened.
        why: String,
        /// The position after which a new subscription will be complete.
        resume: Position,
    },
    /// The node is going away.
    #[error("the node is stopping")]
    Stopping,
    /// Something that should be impossible; the detail says what.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Why nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotSent {
    /// The node that was asked does not lead and could not pass it on.
    NotLeader,
    /// Nobody leads at the moment, or the leader has no quorum.
    NoLeader,
    /// No connection; the text names the endpoints and what each said.
    Unreachable(String),
    /// Too much waits already; try again after the pause.
    Overloaded {
        /// In milliseconds.
        pause_ms: u64,
    },
    /// The session has no stream at the moment; attach first.
    Detached,
    /// The namespace has sent more commands than it may; try again after the pause.
    RateExceeded {
        /// How many it may send a second.
        a_second: u32,
        /// In milliseconds.
        pause_ms: u64,
    },
}

/// Where the leader was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderHint {
    /// Its node id.
    pub node: u64,
    /// Where clients reach it.
    pub client: String,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSent::NotLeader => f.write_str("the node does not lead"),
            NotSent::NoLeader => f.write_str("no leader with a quorum at the moment"),
            NotSent::Unreachable(detail) => write!(f, "cannot be reached: {detail}"),
            NotSent::Overloaded { pause_ms } => write!(f, "overloaded; try again in {pause_ms} ms"),
            NotSent::Detached => f.write_str("the session has no stream at the moment"),
            NotSent::RateExceeded { a_second, pause_ms } => {
                write!(f, "the namespace may send {a_second} commands a second; try again in {pause_ms} ms")
            }
        }
    }
}

fn hint(leader: &Option<LeaderHint>) -> String {
    leader.as_ref().map_or(String::new(), |leader| format!(" (leader: node {} at {})", leader.node, leader.client))
}

impl ServiceError {
    /// An error for a command that was not sent.
    #[must_use]
    pub fn not_sent(why: NotSent) -> Self {
        ServiceError::NotSent { why, leader: None }
    }

    /// An error for a command whose fate is open.
    pub fn unknown(why: impl fmt::Display) -> Self {
        ServiceError::Unknown { why: why.to_string(), leader: None }
    }

    /// Its word in the [table](super::TABLE).
    #[must_use]
    pub fn word(&self) -> ErrorCode {
        match self {
            ServiceError::NotSent { why: NotSent::Overloaded { .. } | NotSent::RateExceeded { .. }, .. } => {
                ErrorCode::Overloaded
            }
            ServiceError::NotSent { why: NotSent::Unreachable(_), .. } => ErrorCode::Unreachable,
            ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader | NotSent::Detached, .. } => {
                ErrorCode::NoLeader
            }
            ServiceError::Unknown { .. } => ErrorCode::Unknown,
            ServiceError::Invalid(_) => ErrorCode::Invalid,
            ServiceError::Refused(refusal) => ErrorCode::of_refusal(refusal),
            ServiceError::Forbidden { .. } => ErrorCode::NotPermitted,
            ServiceError::EventsMissed { .. } => ErrorCode::EventsMissed,
            ServiceError::Stopping => ErrorCode::Stopping,
            ServiceError::Internal(_) => ErrorCode::Internal,
        }
    }

    /// What the caller may do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.word().row().advice
    }

    /// How long the caller is asked to wait before it tries again, in milliseconds; 0 where no pause is asked for.
    #[must_use]
    pub fn pause_ms(&self) -> u64 {
        match self {
            ServiceError::NotSent {
                why: NotSent::Overloaded { pause_ms } | NotSent::RateExceeded { pause_ms, .. },
                ..
            } => *pause_ms,
            ServiceError::NotSent { .. }
            | ServiceError::Unknown { .. }
            | ServiceError::Invalid(_)
            | ServiceError::Refused(_)
            | ServiceError::Forbidden { .. }
            | ServiceError::EventsMissed { .. }
            | ServiceError::Stopping
            | ServiceError::Internal(_) => 0,
        }
    }

    /// The leader, where the error names one.
    #[must_use]
    pub fn leader(&self) -> Option<&LeaderHint> {
        let (ServiceError::NotSent { leader, .. } | ServiceError::Unknown { leader, .. }) = self else { return None };
        leader.as_ref()
    }
}
