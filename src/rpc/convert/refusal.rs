//! What exactly was in the way, as errors carry it, both ways.

use super::table::{Wire, read_set};
use crate::limits;
use crate::model::{DeadlockLink, Invalid, Refusal};
use crate::rpc::pb;
use crate::rpc::pb::error::Refusal as Why;
use crate::service::{LeaderHint, NotSent, ServiceError};

wire_messages! {
    DeadlockLink = DeadlockLink { session, owner, who, what_for, lock, why }
}

wire_oneof! {
    Refusal = refused::Why in Refused.why {
        Held = HeldLock { lock, holder, closed },
        AlreadyHeld = AlreadyHeld { lock, session, token },
        KindMismatch = KindMismatch { lock, kind },
        LimitMismatch = LimitConflict { lock, limit, asked },
        LimitExceeded = LimitConflict { lock, limit, asked },
        LimitUnknown { lock },
        Deadlock = Cycle { ; links: cycle },
        Quota = ReachedQuota { limit; kind: what },
        NotHeld { lock },
        HeldByOther = OtherHolder { lock, holder },
        SessionEnded = SessionEnded { session, reason, why },
        AlreadyOpen { session },
        Tombstoned { reason },
        WrongHandle,
        StaleAttempt { newest },
        TooOld = OldRequest { number, floor },
        RequestReused { number },
        OutOfBounds = OutOfBounds { field, advice; low_ms: low, high_ms: high, value_ms: value },
        OtherDisk { node },
        FeaturesUnsupported = UnsupportedLevel { to, node, supports },
        FeatureLevel = LowLevel { needed, active },
        Entered = EnteredHold { lock, depth },
        NotAccepted = UnwillingSession { lock, session },
        Changed = ChangedLock { lock, value },
        MembersUnfit { why },
        Closed { left_ms },
        PermitsNotHeld = PermitConflict { lock, held, asked },
        OtherNamespace = OtherNamespace { session, namespace, asked },
    }
}

/// The beginning of a text, of at most so many bytes, which ends between two characters.
pub(super) fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// A text that another program made, in the length that an error has a place for.
fn cut(text: &str) -> String {
    beginning(text, limits::ERROR_TEXT_BYTES_MAX).to_owned()
}

/// How long the caller is asked to pause.
pub(super) fn pause_ms(error: &ServiceError) -> u64 {
    let ServiceError::NotSent { why, leader: _ } = error else { return 0 };
    match why {
        NotSent::Overloaded { pause_ms } | NotSent::RateExceeded { pause_ms, .. } => *pause_ms,
        NotSent::NotLeader | NotSent::NoLeader | NotSent::Unreachable(_) | NotSent::Detached => 0,
    }
}

/// What was in the way.
pub(super) fn why(error: &ServiceError) -> Why {
    match error {
        ServiceError::NotSent { why, leader: _ } => match why {
            NotSent::NotLeader => Why::NotLeader(pb::Empty {}),
            NotSent::NoLeader => Why::NoLeader(pb::Empty {}),
            NotSent::Unreachable(text) => Why::Unreachable(cut(text)),
            NotSent::Overloaded { pause_ms: _ } => Why::Overloaded(pb::Empty {}),
            NotSent::Detached => Why::Detached(pb::Empty {}),
            NotSent::RateExceeded { a_second, pause_ms: _ } => Why::RateExceeded(*a_second),
        },
        ServiceError::Unknown { why, leader: _ } => Why::Unknown(cut(why)),
        ServiceError::Invalid(Invalid { field, bound, value }) => {
            Why::Invalid(pb::InvalidValue { field: cut(field), bound: cut(bound), value: cut(value) })
        }
        ServiceError::Refused(refusal) => Why::Refused(refusal.to_wire()),
        ServiceError::Forbidden { why } => Why::Forbidden(cut(why)),
        ServiceError::EventsMissed { why, resume } => {
            Why::EventsMissed(pb::MissedEvents { why: cut(why), resume: resume.to_wire() })
        }
        ServiceError::Stopping => Why::Stopping(pb::Empty {}),
        ServiceError::Internal(text) => Why::Internal(cut(text)),
    }
}

/// The error that this was made from.
pub(super) fn read(why: Why, leader: Option<LeaderHint>, pause_ms: u64) -> Result<ServiceError, Invalid> {
    let not_sent = match why {
        Why::NotLeader(pb::Empty {}) => NotSent::NotLeader,
        Why::NoLeader(pb::Empty {}) => NotSent::NoLeader,
        Why::Unreachable(text) => NotSent::Unreachable(text),
        Why::Overloaded(pb::Empty {}) => NotSent::Overloaded { pause_ms },
        Why::Detached(pb::Empty {}) => NotSent::Detached,
        Why::RateExceeded(a_second) => NotSent::RateExceeded { a_second, pause_ms },
        Why::Unknown(why) => return Ok(ServiceError::Unknown { why, leader }),
        Why::Invalid(pb::InvalidValue { field, bound, value }) => return Ok(Invalid { field, bound, value }.into()),
        Why::Refused(refusal) => return Refusal::from_wire("refused", refusal).map(ServiceError::Refused),
        Why::Forbidden(why) => return Ok(ServiceError::Forbidden { why }),
        Why::EventsMissed(pb::MissedEvents { why, resume }) => {
            return Ok(ServiceError::EventsMissed { why, resume: read_set("resume", resume)? });
        }
        Why::Stopping(pb::Empty {}) => return Ok(ServiceError::Stopping),
        Why::Internal(text) => return Ok(ServiceError::Internal(text)),
    };
    Ok(ServiceError::NotSent { why: not_sent, leader })
}
