//! Events.

use super::changes;
use super::part::{known, namespace, required};
use crate::model::{
    Claim, EndReason, Event, EventKind, FencingToken, Invalid, LeaveReason, LockKey, LogTime, Reason, SessionId,
    WallTime,
};
use crate::rpc::pb;
use crate::rpc::pb::event::Kind;

impl From<&Event> for pb::Event {
    fn from(event: &Event) -> Self {
        Self {
            position: Some(event.position.into()),
            at_ms: event.at.0,
            wall_ms: event.wall.0,
            namespace: event.namespace.as_ref().map(ToString::to_string),
            kind: Some((&event.kind).into()),
        }
    }
}

impl TryFrom<pb::Event> for Event {
    type Error = Invalid;
    fn try_from(event: pb::Event) -> Result<Self, Invalid> {
        Ok(Self {
            position: required("position", event.position)?.into(),
            at: LogTime(event.at_ms),
            wall: WallTime(event.wall_ms),
            namespace: event.namespace.map(|text| namespace(&text)).transpose()?,
            kind: required("kind", event.kind)?.try_into()?,
        })
    }
}

impl From<&EventKind> for Kind {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::Queued { lock, claim, sequence } => {
                Kind::Queued(pb::EventQueued { lock: to_lock(lock), claim: to_claim(*claim), sequence: *sequence })
            }
            EventKind::Granted { lock, claim, token, mode, waited_ms } => Kind::Granted(pb::EventGranted {
                lock: to_lock(lock),
                claim: to_claim(*claim),
                token: token.as_u64(),
                mode: Some((*mode).into()),
                waited_ms: *waited_ms,
            }),
            EventKind::Left { lock, claim, sequence, why } => Kind::Left(pb::EventLeft {
                lock: to_lock(lock),
                claim: to_claim(*claim),
                sequence: *sequence,
                why: pb::LeaveReason::from(*why).into(),
            }),
            EventKind::Released { lock, claim, token, held_ms } => Kind::Released(pb::EventReleased {
                lock: to_lock(lock),
                claim: to_claim(*claim),
                token: token.as_u64(),
                held_ms: *held_ms,
            }),
            EventKind::Expired { lock, claim, token, reason, held_ms } => Kind::Expired(pb::EventExpired {
                lock: to_lock(lock),
                claim: to_claim(*claim),
                token: token.as_u64(),
                reason: pb::EndReason::from(*reason).into(),
                held_ms: *held_ms,
            }),
            EventKind::Upgraded { lock, claim, from, token, waited_ms } => {
                changes::upgraded(lock, *claim, *from, *token, *waited_ms)
            }
            EventKind::Downgraded { lock, claim, token } => changes::downgraded(lock, *claim, *token),
            EventKind::PermitsReturned { lock, claim, token, count } => {
                changes::permits_returned(lock, *claim, *token, *count)
            }
            EventKind::Resumed { lock, claim, from, token, mode } => {
                changes::resumed(lock, *claim, *from, *token, *mode)
            }
            EventKind::Broken { lock, claim, token, by, why, held_ms } => {
                changes::broken(lock, *claim, *token, by, why, *held_ms)
            }
            EventKind::HandedOver { lock, claim, was, from, token, mode, by } => {
                changes::handed_over(lock, (*claim, *was), (*from, *token), *mode, by)
            }
            EventKind::RevokeRequested { lock, claim, token, by, why } => {
                changes::revoke_requested(lock, *claim, *token, by, why)
            }
            EventKind::ValueChanged { lock, claim, token } => changes::value_changed(lock, *claim, *token),
            EventKind::LimitChanged { lock, limit } => changes::limit_changed(lock, *limit),
            EventKind::Reopened { lock, token } => changes::reopened(lock, *token),
            EventKind::SessionOpened { session } => Kind::SessionOpened(session.as_u64()),
            EventKind::SessionEnded { session, reason, why } => Kind::SessionEnded(pb::SessionEnded {
                session: session.as_u64(),
                reason: pb::EndReason::from(*reason).into(),
                why: why.as_ref().map(|why| why.as_str().to_owned()),
            }),
            EventKind::LeaderlessGap { gap_ms } => Kind::LeaderlessGapMs(*gap_ms),
        }
    }
}

impl TryFrom<Kind> for EventKind {
    type Error = Invalid;
    fn try_from(kind: Kind) -> Result<Self, Invalid> {
        Ok(match kind {
            Kind::Queued(pb::EventQueued { lock: l, claim: c, sequence }) => {
                EventKind::Queued { lock: lock(l)?, claim: claim(c)?, sequence }
            }
            Kind::Granted(event) => EventKind::Granted {
                lock: lock(event.lock)?,
                claim: claim(event.claim)?,
                token: FencingToken::from_u64(event.token)?,
                mode: required("mode", event.mode)?.try_into()?,
                waited_ms: event.waited_ms,
            },
            Kind::Left(event) => EventKind::Left {
                lock: lock(event.lock)?,
                claim: claim(event.claim)?,
                sequence: event.sequence,
                why: LeaveReason::try_from(known::<pb::LeaveReason>("why", event.why)?)?,
            },
            Kind::Released(event) => EventKind::Released {
                lock: lock(event.lock)?,
                claim: claim(event.claim)?,
                token: FencingToken::from_u64(event.token)?,
                held_ms: event.held_ms,
            },
            Kind::Expired(event) => EventKind::Expired {
                lock: lock(event.lock)?,
                claim: claim(event.claim)?,
                token: FencingToken::from_u64(event.token)?,
                reason: EndReason::try_from(known::<pb::EndReason>("reason", event.reason)?)?,
                held_ms: event.held_ms,
            },
            Kind::Upgraded(event) => changes::read_upgraded(event)?,
            Kind::Downgraded(event) => changes::read_downgraded(event)?,
            Kind::PermitsReturned(event) => changes::read_permits_returned(event)?,
            Kind::Resumed(event) => changes::read_resumed(event)?,
            Kind::Broken(event) => changes::read_broken(event)?,
            Kind::HandedOver(event) => changes::read_handed_over(event)?,
            Kind::RevokeRequested(event) => changes::read_revoke_requested(event)?,
            Kind::ValueChanged(event) => changes::read_value_changed(event)?,
            Kind::LimitChanged(event) => changes::read_limit_changed(event)?,
            Kind::Reopened(event) => changes::read_reopened(event)?,
            Kind::SessionOpened(session) => EventKind::SessionOpened { session: SessionId::from_u64(session)? },
            Kind::SessionEnded(event) => EventKind::SessionEnded {
                session: SessionId::from_u64(event.session)?,
                reason: EndReason::try_from(known::<pb::EndReason>("reason", event.reason)?)?,
                why: event.why.as_deref().map(Reason::parse).transpose()?,
            },
            Kind::LeaderlessGapMs(gap_ms) => EventKind::LeaderlessGap { gap_ms },
        })
    }
}

pub(super) fn to_lock(lock: &LockKey) -> Option<pb::LockKey> {
    Some(lock.into())
}

pub(super) fn to_claim(claim: Claim) -> Option<pb::Claim> {
    Some(claim.into())
}

pub(super) fn lock(lock: Option<pb::LockKey>) -> Result<LockKey, Invalid> {
    required("lock", lock)?.try_into()
}

pub(super) fn claim(claim: Option<pb::Claim>) -> Result<Claim, Invalid> {
    required("claim", claim)?.try_into()
}
