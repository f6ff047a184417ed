//! Details of errors, in both directions.

use super::table::Wire;
use crate::model::{DeadlockLink, Invalid, Refusal};
use crate::rpc::pb;
use crate::service::{LeaderHint, NotSent, ServiceError};

wire_messages! {
    LeaderHint = Leader { node, client }
    Invalid = InvalidValue { field, bound, value }
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
        RequestReused { claim },
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

wire_oneof! {
    ServiceError = error::Refusal {
        NotSent { why + leader },
        Unknown { why + leader },
        Invalid(invalid),
        Refused(refused),
        Forbidden { why },
        EventsMissed = MissedEvents { why, resume },
        Stopping,
        Internal(text),
        Unauthenticated { why },
    }
}

wire_oneof! {
    NotSent = not_sent::Why in NotSent.why {
        NotLeader,
        NoLeader,
        Unreachable(text),
        Overloaded { pause_ms },
        Detached,
        RateExceeded = ExceededRate { a_second, pause_ms },
        LimitReached = ReachedLimit { limit, pause_ms },
    }
}
