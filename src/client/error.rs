//! Errors of the client, sorted by what they mean for the caller's work.

use crate::model::{
    Closing, EndReason, FencingToken, HolderView, Invalid, LockName, Outcome, QueryReply, Reason, Refusal, SessionId,
};
use crate::service::{Advice, ErrorCode, ServiceError};

/// Why a call of the client did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The lock was not free, or did not become free in time. The caller neither holds it nor waits for it.
    #[error("{lock} was not acquired{}", held_by(.holder.as_deref(), .closed.as_deref()))]
    NotAcquired {
        /// Which lock.
        lock: LockName,
        /// A holder or an earlier waiter, as the cluster last named one; `None` where it named none.
        holder: Option<Box<HolderView>>,
        /// What keeps it closed though it is not held, where that is why.
        closed: Option<Box<Closing>>,
    },
    /// The machine refused; the answer is final.
    #[error(transparent)]
    Refused(Refusal),
    /// The session has ended, and with it everything that it held.
    #[error("session {session} was lost{}", .reason.map_or(String::new(), |reason| format!(" ({})", explained(reason, .why))))]
    SessionLost {
        /// Which.
        session: SessionId,
        /// How, where the cluster said so; `None` where the client found its own deadline passed.
        reason: Option<EndReason>,
        /// What the operator said that ended it, if an operator did.
        why: Option<Reason>,
    },
    /// The hold was granted, and ended before its holder had the answer.
    #[error("{lock} was acquired, but the hold has ended already ({reason})")]
    HoldEnded {
        /// Which lock.
        lock: LockName,
        /// How.
        reason: EndReason,
    },
    /// The service could not answer, for as long as the caller allowed.
    #[error(transparent)]
    Service(ServiceError),
    /// A value was out of bounds; nothing was sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ClientError {
    /// An outcome that is no answer to the request: a refusal, or something that should be impossible.
    pub(crate) fn unexpected(outcome: Outcome) -> Self {
        if let Outcome::Refused(refusal) = outcome {
            return refusal.into();
        }
        ClientError::Service(ServiceError::Internal(format!("an answer to another question: {outcome:?}")))
    }

    /// An answer to another query than the one that was sent.
    pub(crate) fn unexpected_answer(reply: &QueryReply) -> Self {
        ClientError::Service(ServiceError::Internal(format!("an answer to another question: {:?}", reply.answer)))
    }

    /// Its word in the [table](crate::service::TABLE).
    #[must_use]
    pub fn word(&self) -> ErrorCode {
        match self {
            ClientError::NotAcquired { .. } => ErrorCode::NotAcquired,
            ClientError::Refused(refusal) => ErrorCode::of_refusal(refusal),
            ClientError::SessionLost { .. } => ErrorCode::SessionEnded,
            ClientError::HoldEnded { .. } => ErrorCode::Lost,
            ClientError::Service(error) => error.word(),
            ClientError::Invalid(_) => ErrorCode::Invalid,
        }
    }

    /// What the caller may do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.word().row().advice
    }
}

impl From<ServiceError> for ClientError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Invalid(invalid) => ClientError::Invalid(invalid),
            error @ (ServiceError::NotSent { .. }
            | ServiceError::Unknown { .. }
            | ServiceError::Forbidden { .. }
            | ServiceError::EventsMissed { .. }
            | ServiceError::Stopping
            | ServiceError::Internal(_)) => ClientError::Service(error),
        }
    }
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Held { lock, holder, closed } => ClientError::NotAcquired { lock: lock.name, holder, closed },
            Refusal::SessionEnded { session, reason, why } => {
                ClientError::SessionLost { session, reason: Some(reason), why }
            }
            refusal @ (Refusal::AlreadyHeld { .. }
            | Refusal::Entered { .. }
            | Refusal::PermitsNotHeld { .. }
            | Refusal::NotAccepted { .. }
            | Refusal::Changed { .. }
            | Refusal::Closed { .. }
            | Refusal::MembersUnfit { .. }
            | Refusal::Deadlock { .. }
            | Refusal::KindMismatch { .. }
            | Refusal::LimitMismatch { .. }
            | Refusal::LimitExceeded { .. }
            | Refusal::LimitUnknown { .. }
            | Refusal::Quota { .. }
            | Refusal::NotHeld { .. }
            | Refusal::HeldByOther { .. }
            | Refusal::AlreadyOpen { .. }
            | Refusal::Tombstoned { .. }
            | Refusal::WrongHandle
            | Refusal::StaleAttempt { .. }
            | Refusal::TooOld { .. }
            | Refusal::RequestReused { .. }
            | Refusal::OtherNamespace { .. }
            | Refusal::OutOfBounds { .. }
            | Refusal::OtherDisk { .. }
            | Refusal::FeaturesUnsupported { .. }
            | Refusal::FeatureLevel { .. }) => ClientError::Refused(refusal),
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

/// The lock was lost while its holder worked: another may hold it from now on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lock} (token {token}) was lost: {}", cause(*.alone, *.session, *.reason, .why))]
pub struct Lost {
    /// Which lock.
    pub lock: LockName,
    /// Which grant.
    pub token: FencingToken,
    /// Whose.
    pub session: SessionId,
    /// The session goes on: only this hold has ended.
    pub alone: bool,
    /// How, where the cluster said so; `None` where the client found its own deadline passed.
    pub reason: Option<EndReason>,
    /// What the operator said that ended its session, if an operator did.
    pub why: Option<Reason>,
}

fn explained(reason: EndReason, why: &Option<Reason>) -> String {
    why.as_ref().map_or(reason.to_string(), |why| format!("{reason}: {}", why.as_str()))
}

fn cause(alone: bool, session: SessionId, reason: Option<EndReason>, why: &Option<Reason>) -> String {
    match (alone, reason) {
        (false, None) => format!("its session {session} could not be renewed in time"),
        (false, Some(reason)) => format!("its session {session} has ended ({})", explained(reason, why)),
        (true, None) => "it is held no longer".to_owned(),
        (true, Some(EndReason::Broken)) => "it was broken".to_owned(),
        (true, Some(EndReason::HandedOver)) => "it was handed over to another".to_owned(),
        (true, Some(EndReason::Expired)) => "its lease ran out".to_owned(),
        (true, Some(EndReason::TimeOver)) => "the longest time that it asked for is over".to_owned(),
        (
            true,
            Some(reason @ (EndReason::Released | EndReason::Lost | EndReason::Cancelled | EndReason::Overtaken)),
        ) => {
            format!("it was {reason}")
        }
    }
}

impl Lost {
    /// Its word in the [table](crate::service::TABLE).
    #[must_use]
    pub fn word(&self) -> ErrorCode {
        ErrorCode::Lost
    }
}
