//! Errors of the client, sorted by their consequence for the caller's work.

use crate::model::{
    Closing, EndReason, FencingToken, HolderView, Invalid, LockName, Outcome, QueryReply, Reason, Refusal, SessionId,
};
use crate::service::{Advice, ErrorCode, ServiceError};

/// Why a call of the client failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The lock was not free, or did not become free in time. The caller neither holds it nor waits for it.
    #[error("{lock} was not acquired{}", held_by(.holder.as_deref(), .closed.as_deref()))]
    NotAcquired {
        /// Name of the lock.
        lock: LockName,
        /// A holder or an earlier waiter, as the cluster last reported one; `None` if it reported none.
        holder: Option<Box<HolderView>>,
        /// What keeps the lock closed although it is not held, if that is the cause.
        closed: Option<Box<Closing>>,
    },
    /// The cluster refused the command; the answer is final.
    #[error(transparent)]
    Refused(Refusal),
    /// The session has ended, and with it all its holds.
    #[error("session {session} was lost{}", ended(*.reason, .why))]
    SessionLost {
        /// Id of the session.
        session: SessionId,
        /// Why it ended, as the cluster reported it; `None` if the client's own deadline has passed.
        reason: Option<EndReason>,
        /// The reason that an operator gave for ending it, if an operator did. If it could not be renewed because the
        /// cluster refused the client, it is that refusal.
        why: Option<Reason>,
    },
    /// The lock was granted, and its hold ended before the caller received the answer.
    #[error("{lock} was acquired, but the hold has ended already ({reason})")]
    HoldEnded {
        /// Name of the lock.
        lock: LockName,
        /// Why the hold ended.
        reason: EndReason,
    },
    /// The service did not answer within the time that the caller allowed.
    #[error(transparent)]
    Service(ServiceError),
    /// A value was out of bounds; nothing was sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ClientError {
    /// Returns the error for an outcome that is no answer to the request: a refusal, or an outcome that should be
    /// impossible.
    pub(crate) fn unexpected(outcome: Outcome) -> Self {
        if let Outcome::Refused(refusal) = outcome {
            return refusal.into();
        }
        ClientError::Service(ServiceError::Internal(format!("an answer of an unexpected kind: {outcome:?}")))
    }

    /// Returns the error for an answer to another query than the one that was sent.
    pub(crate) fn unexpected_answer(reply: &QueryReply) -> Self {
        ClientError::Service(ServiceError::Internal(format!("an answer of an unexpected kind: {:?}", reply.answer)))
    }

    /// Returns the error's code in the [table](crate::service::TABLE).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            ClientError::NotAcquired { .. } => ErrorCode::NotAcquired,
            ClientError::Refused(refusal) => ErrorCode::of_refusal(refusal),
            ClientError::SessionLost { .. } => ErrorCode::SessionEnded,
            ClientError::HoldEnded { .. } => ErrorCode::Lost,
            ClientError::Service(error) => error.code(),
            ClientError::Invalid(_) => ErrorCode::Invalid,
        }
    }

    /// Returns what the caller can do about the error.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.code().row().advice
    }
}

impl From<ServiceError> for ClientError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other error stays as it is")]
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Invalid(invalid) => ClientError::Invalid(invalid),
            other => ClientError::Service(other),
        }
    }
}

impl From<Refusal> for ClientError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other refusal stays as it is")]
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Held { lock, holder, closed } => ClientError::NotAcquired { lock: lock.name, holder, closed },
            Refusal::SessionEnded { session, reason, why } => {
                ClientError::SessionLost { session, reason: Some(reason), why }
            }
            other => ClientError::Refused(other),
        }
    }
}

fn held_by(holder: Option<&HolderView>, closed: Option<&Closing>) -> String {
    match (holder, closed) {
        (Some(holder), _) => format!(": held by {} (token {})", holder.metadata.name(), holder.token),
        (None, Some(closed)) => format!(": {closed}"),
        (None, None) => String::new(),
    }
}

/// The lock was lost while its holder worked: another client may hold it from now on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lock} (token {token}) was lost: {}", cause(*.alone, *.session, *.reason, .why))]
pub struct Lost {
    /// Name of the lock.
    pub lock: LockName,
    /// Fencing token of the grant.
    pub token: FencingToken,
    /// Session of the hold.
    pub session: SessionId,
    /// True if only this hold has ended and its session continues.
    pub alone: bool,
    /// Why it ended, as the cluster reported it; `None` if the client's own deadline has passed.
    pub reason: Option<EndReason>,
    /// The reason that an operator gave for ending the session or for breaking the hold. If the session could not be
    /// renewed because the cluster refused the client, it is that refusal.
    pub why: Option<Reason>,
}

fn explained(reason: EndReason, why: &Option<Reason>) -> String {
    why.as_ref().map_or(reason.to_string(), |why| format!("{reason}: {}", why.as_str()))
}

/// Returns what the text of a lost session says about its end.
fn ended(reason: Option<EndReason>, why: &Option<Reason>) -> String {
    match (reason, why) {
        (Some(reason), why) => format!(" ({})", explained(reason, why)),
        (None, Some(why)) => format!(" (it could not be renewed: {})", why.as_str()),
        (None, None) => String::new(),
    }
}

fn cause(alone: bool, session: SessionId, reason: Option<EndReason>, why: &Option<Reason>) -> String {
    match (alone, reason) {
        (false, None) => {
            let why = why.as_ref().map_or(String::new(), |why| format!(": {}", why.as_str()));
            format!("its session {session} could not be renewed in time{why}")
        }
        (false, Some(reason)) => format!("its session {session} has ended ({})", explained(reason, why)),
        (true, None) => "it is not held any more".to_owned(),
        (true, Some(EndReason::Broken)) => format!("it was {}", explained(EndReason::Broken, why)),
        (true, Some(EndReason::HandedOver)) => "it was handed over to another".to_owned(),
        (true, Some(EndReason::Expired)) => "its lease expired".to_owned(),
        (true, Some(EndReason::TimeOver)) => "its longest duration has passed".to_owned(),
        (
            true,
            Some(reason @ (EndReason::Released | EndReason::Lost | EndReason::Cancelled | EndReason::Overtaken)),
        ) => {
            format!("it was {reason}")
        }
    }
}

impl Lost {
    /// Returns the error's code in the [table](crate::service::TABLE).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        ErrorCode::Lost
    }
}
