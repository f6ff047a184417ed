//! Errors between a caller and the log, one variant for each thing that the caller can do about them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error_table::{Advice, ErrorCode};
use crate::auth::Denied;
use crate::limits::OVERLOADED_PAUSE_MS;
use crate::model::{Invalid, Position, Refusal};

/// Why a service returned no answer. An unknown outcome is never reported as "it did not happen".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ServiceError {
    /// The command was not sent and never will be: the caller may repeat it freely.
    #[error("not sent: {why}{}", hint(.leader.as_ref().filter(|_| *why != NotSent::NoLeader)))]
    NotSent {
        /// Reason that nothing was sent.
        why: NotSent,
        /// Leader to send the command to, if known.
        leader: Option<LeaderHint>,
    },
    /// The command may have been applied: repeat it with the same request number, or query its outcome.
    #[error("outcome unknown: {why}{}", hint(.leader.as_ref()))]
    Unknown {
        /// Description of the failure.
        why: String,
        /// Leader to ask, if known.
        leader: Option<LeaderHint>,
    },
    /// A value was out of bounds; nothing reached the log.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The lock machine refused the command; the answer is final.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller lacks the permission.
    #[error("not permitted: {why}")]
    Forbidden {
        /// Permission or feature that is missing.
        why: String,
    },
    /// Events up to `resume` are no longer kept, or the reader was too slow: continue from `resume`.
    #[error("events were missed: {why}; continue from {resume}")]
    EventsMissed {
        /// Reason that events were missed.
        why: String,
        /// Position after which a new subscription misses nothing.
        resume: Position,
    },
    /// The node is shutting down, and has done nothing: another node can do it.
    #[error("the node is stopping")]
    Stopping,
    /// An internal error, with a description: a bug, or an answer that the protocol does not allow.
    #[error("internal error: {0}")]
    Internal(String),
    /// The caller does not prove that it is a principal of the cluster.
    #[error("not authenticated: {why}")]
    Unauthenticated {
        /// Proof that is missing or not valid.
        why: String,
    },
}

impl From<Denied> for ServiceError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unauthenticated(why) => ServiceError::Unauthenticated { why },
            Denied::Forbidden(why) => ServiceError::Forbidden { why },
        }
    }
}

/// Why a command was not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotSent {
    /// The asked node does not lead and could not forward the command.
    NotLeader,
    /// No node leads at the moment, or the leader has no quorum.
    NoLeader,
    /// No endpoint could be reached, or none answered a read; the text names each endpoint and its error.
    Unreachable(String),
    /// Too many commands are waiting; retry after the pause.
    Overloaded {
        /// Time to wait before a retry, in milliseconds.
        pause_ms: u64,
    },
    /// The session has no stream at the moment: attach it first.
    Detached,
    /// The namespace has sent more commands than its rate allows; retry after the pause.
    RateExceeded {
        /// Allowed commands per second.
        a_second: u32,
        /// Time to wait before a retry, in milliseconds.
        pause_ms: u64,
    },
    /// The caller or the node has reached a limit; retry after the pause.
    LimitReached {
        /// The limit, in words.
        limit: String,
        /// Time to wait before a retry, in milliseconds.
        pause_ms: u64,
    },
}

/// The leader as the answering node last saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderHint {
    /// Node id of the leader.
    pub node: u64,
    /// Address of the leader for clients.
    pub client: String,
}

impl NotSent {
    /// The refusal of a call for which a queue has no place at the moment.
    pub(crate) const OVERLOADED: Self = Self::Overloaded { pause_ms: OVERLOADED_PAUSE_MS };
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSent::NotLeader => f.write_str("the node does not lead"),
            NotSent::NoLeader => f.write_str("no leader with a quorum at the moment"),
            NotSent::Unreachable(detail) => write!(f, "cannot be reached: {detail}"),
            NotSent::Overloaded { pause_ms } => write!(f, "overloaded; {}", later(*pause_ms)),
            NotSent::Detached => f.write_str("the session has no stream at the moment"),
            NotSent::RateExceeded { a_second, pause_ms } => {
                write!(f, "the namespace may send {a_second} commands a second; {}", later(*pause_ms))
            }
            NotSent::LimitReached { limit, pause_ms } => write!(f, "{limit}; {}", later(*pause_ms)),
        }
    }
}

fn later(pause_ms: u64) -> String {
    format!("try again in {}", humantime::format_duration(Duration::from_millis(pause_ms)))
}

/// Names the leader. Without a leader with a quorum the hint is the last leader, which the text must not call a leader.
fn hint(leader: Option<&LeaderHint>) -> String {
    leader.map_or(String::new(), |leader| format!(" (leader: node {} at {})", leader.node, leader.client))
}

impl ServiceError {
    /// Returns the error of a command that was not sent.
    #[must_use]
    pub fn not_sent(why: NotSent) -> Self {
        ServiceError::NotSent { why, leader: None }
    }

    /// Returns the error of a command whose outcome is unknown.
    pub fn unknown(why: impl fmt::Display) -> Self {
        ServiceError::Unknown { why: why.to_string(), leader: None }
    }

    /// Returns this error as that of a read. A read changes nothing, so a lost answer to it means *not sent*.
    pub(crate) fn of_read(self) -> Self {
        let ServiceError::Unknown { why, leader } = self else { return self };
        ServiceError::NotSent { why: NotSent::Unreachable(why), leader }
    }

    /// Whether a command that failed with this error may have been applied.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match self {
            ServiceError::Unknown { .. } | ServiceError::Internal(_) => true,
            ServiceError::NotSent { .. }
            | ServiceError::Stopping
            | ServiceError::Invalid(_)
            | ServiceError::Refused(_)
            | ServiceError::Forbidden { .. }
            | ServiceError::Unauthenticated { .. }
            | ServiceError::EventsMissed { .. } => false,
        }
    }

    /// Returns the code of this error in the [table](super::TABLE).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            ServiceError::NotSent { why, .. } => match why {
                NotSent::Overloaded { .. } | NotSent::RateExceeded { .. } | NotSent::LimitReached { .. } => {
                    ErrorCode::Overloaded
                }
                NotSent::Unreachable(_) => ErrorCode::Unreachable,
                NotSent::NotLeader | NotSent::NoLeader | NotSent::Detached => ErrorCode::NoLeader,
            },
            ServiceError::Unknown { .. } => ErrorCode::Unknown,
            ServiceError::Invalid(_) => ErrorCode::Invalid,
            ServiceError::Refused(refusal) => ErrorCode::of_refusal(refusal),
            ServiceError::Forbidden { .. } => ErrorCode::NotPermitted,
            ServiceError::EventsMissed { .. } => ErrorCode::EventsMissed,
            ServiceError::Stopping => ErrorCode::Stopping,
            ServiceError::Internal(_) => ErrorCode::Internal,
            ServiceError::Unauthenticated { .. } => ErrorCode::Unauthenticated,
        }
    }

    /// Returns what the caller may do about the error.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.code().row().advice
    }

    /// Returns how long the caller should wait before a retry, in milliseconds; 0 if the error requests no pause.
    #[must_use]
    pub fn pause_ms(&self) -> u64 {
        let ServiceError::NotSent { why, .. } = self else { return 0 };
        match why {
            NotSent::Overloaded { pause_ms }
            | NotSent::RateExceeded { pause_ms, .. }
            | NotSent::LimitReached { pause_ms, .. } => *pause_ms,
            NotSent::NotLeader | NotSent::NoLeader | NotSent::Unreachable(_) | NotSent::Detached => 0,
        }
    }

    /// Returns the leader, if the error names one.
    #[must_use]
    pub fn leader(&self) -> Option<&LeaderHint> {
        let (ServiceError::NotSent { leader, .. } | ServiceError::Unknown { leader, .. }) = self else { return None };
        leader.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that says that no node leads names no leader.
    #[test]
    fn no_leader_has_no_hint() {
        let text = |why| {
            let leader = Some(LeaderHint { node: 3, client: "c:1".to_owned() });
            ServiceError::NotSent { why, leader }.to_string()
        };
        assert_eq!(text(NotSent::NotLeader), "not sent: the node does not lead (leader: node 3 at c:1)");
        assert_eq!(text(NotSent::NoLeader), "not sent: no leader with a quorum at the moment");
    }

    /// All texts write a pause in the same way.
    #[test]
    fn pauses_are_written_alike() {
        let limit = "it is full".to_owned();
        for (pause_ms, shown) in [(40, "40ms"), (1_500, "1s 500ms"), (60_000, "1m")] {
            for why in [
                NotSent::Overloaded { pause_ms },
                NotSent::RateExceeded { a_second: 9, pause_ms },
                NotSent::LimitReached { limit: limit.clone(), pause_ms },
            ] {
                let text = why.to_string();
                assert!(text.ends_with(&format!("; try again in {shown}")), "{text}");
            }
        }
    }
}
