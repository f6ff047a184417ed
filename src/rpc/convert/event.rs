//! Events.

use super::scalars::{namespace, required};
use super::table::{Wire, must_be_set};
use crate::model::{
    Claim, EndReason, Event, EventKind, FencingToken, Invalid, LockKey, LogTime, Mode, Principal, Reason, SessionId,
    Subject, WaitEndReason, WallTime,
};
use crate::rpc::pb;
use crate::rpc::pb::event::Kind;

impl From<&Event> for pb::Event {
    fn from(event: &Event) -> Self {
        Self {
            position: event.position.to_wire(),
            at_ms: event.at.0,
            wall_ms: event.wall.0,
            namespace: event.namespace.as_ref().map(ToString::to_string),
            kind: Some(kind(&event.subject, &event.kind)),
        }
    }
}

impl TryFrom<pb::Event> for Event {
    type Error = Invalid;
    fn try_from(event: pb::Event) -> Result<Self, Invalid> {
        let (subject, kind) = read(required("kind", event.kind)?)?;
        Ok(Self {
            position: Wire::from_wire("position", event.position)?,
            at: LogTime(event.at_ms),
            wall: WallTime(event.wall_ms),
            namespace: event.namespace.map(|text| namespace(&text)).transpose()?,
            subject,
            kind,
        })
    }
}

impl Wire<pb::Event> for Event {
    fn to_wire(&self) -> pb::Event {
        self.into()
    }

    fn from_wire(_: &'static str, wire: pb::Event) -> Result<Self, Invalid> {
        wire.try_into()
    }
}
must_be_set!(Event: pb::Event);

/// What happened, and what it is about. A part that the subject lacks is left empty, which a reader refuses.
fn kind(subject: &Subject, kind: &EventKind) -> Kind {
    let lock: Option<pb::LockKey> = subject.lock().map(Into::into);
    let claim: Option<pb::Claim> = subject.claim().to_wire();
    let token = subject.token().map_or(0, FencingToken::as_u64);
    let session = subject.session().map_or(0, SessionId::as_u64);
    match kind {
        EventKind::Queued { sequence } => Kind::Queued(pb::EventQueued { lock, claim, sequence: *sequence }),
        EventKind::Granted { mode, waited_ms } => {
            let mode = mode.to_wire();
            Kind::Granted(pb::EventGranted { lock, claim, token, mode, waited_ms: *waited_ms })
        }
        EventKind::WaitEnded { sequence, why } => {
            let why = why.to_wire();
            Kind::Left(pb::EventLeft { lock, claim, sequence: *sequence, why })
        }
        EventKind::Released { held_ms } => Kind::Released(pb::EventReleased { lock, claim, token, held_ms: *held_ms }),
        EventKind::Expired { reason, held_ms } => {
            let reason = reason.to_wire();
            Kind::Expired(pb::EventExpired { lock, claim, token, reason, held_ms: *held_ms })
        }
        EventKind::Upgraded { from, waited_ms } => {
            let previous_token = from.as_u64();
            Kind::Upgraded(pb::EventUpgraded { lock, claim, previous_token, token, waited_ms: *waited_ms })
        }
        EventKind::Downgraded => Kind::Downgraded(pb::EventDowngraded { lock, claim, token }),
        EventKind::PermitsReturned { count } => {
            Kind::PermitsReturned(pb::EventPermitsReturned { lock, claim, token, count: *count })
        }
        EventKind::Resumed { from, mode } => {
            let (previous_token, mode) = (from.as_u64(), mode.to_wire());
            Kind::Resumed(pb::EventResumed { lock, claim, previous_token, token, mode })
        }
        EventKind::Broken { by, why, held_ms } => {
            let (by, why) = (by.to_string(), why.as_str().to_owned());
            Kind::Broken(pb::EventBroken { lock, claim, token, by, why, held_ms: *held_ms })
        }
        EventKind::HandedOver { was, from, mode, by } => {
            let (previous_token, mode, by) = (from.as_u64(), mode.to_wire(), by.to_string());
            let was = was.to_wire();
            Kind::HandedOver(pb::EventHandedOver { lock, claim, previous_token, token, mode, by, was })
        }
        EventKind::RevokeRequested { by, why } => {
            let (by, why) = (by.to_string(), why.as_str().to_owned());
            Kind::RevokeRequested(pb::EventRevokeRequested { lock, claim, token, by, why })
        }
        EventKind::ValueChanged => Kind::ValueChanged(pb::EventValueChanged { lock, claim, token }),
        EventKind::LimitChanged { limit } => Kind::LimitChanged(pb::EventLimitChanged { lock, limit: *limit }),
        EventKind::Reopened => Kind::Reopened(pb::EventReopened { lock, token }),
        EventKind::SessionOpened => Kind::SessionOpened(session),
        EventKind::SessionEnded { reason, why } => {
            let (reason, why) = (reason.to_wire(), why.as_ref().map(|why| why.as_str().to_owned()));
            Kind::SessionEnded(pb::SessionEnded { session, reason, why })
        }
        EventKind::LeaderlessGap { gap_ms } => Kind::LeaderlessGapMs(*gap_ms),
    }
}

fn read(kind: Kind) -> Result<(Subject, EventKind), Invalid> {
    Ok(match kind {
        Kind::Queued(e) => (wait(e.lock, e.claim)?, EventKind::Queued { sequence: e.sequence }),
        Kind::Granted(e) => {
            (hold(e.lock, e.claim, e.token)?, EventKind::Granted { mode: mode(e.mode)?, waited_ms: e.waited_ms })
        }
        Kind::Left(e) => {
            let why = WaitEndReason::from_wire("why", e.why)?;
            (wait(e.lock, e.claim)?, EventKind::WaitEnded { sequence: e.sequence, why })
        }
        Kind::Released(e) => (hold(e.lock, e.claim, e.token)?, EventKind::Released { held_ms: e.held_ms }),
        Kind::Expired(e) => {
            (hold(e.lock, e.claim, e.token)?, EventKind::Expired { reason: end(e.reason)?, held_ms: e.held_ms })
        }
        Kind::Upgraded(e) => {
            let from = FencingToken::from_u64(e.previous_token)?;
            (hold(e.lock, e.claim, e.token)?, EventKind::Upgraded { from, waited_ms: e.waited_ms })
        }
        Kind::Downgraded(e) => (hold(e.lock, e.claim, e.token)?, EventKind::Downgraded),
        Kind::PermitsReturned(e) => (hold(e.lock, e.claim, e.token)?, EventKind::PermitsReturned { count: e.count }),
        Kind::Resumed(e) => {
            let from = FencingToken::from_u64(e.previous_token)?;
            (hold(e.lock, e.claim, e.token)?, EventKind::Resumed { from, mode: mode(e.mode)? })
        }
        Kind::Broken(e) => {
            let (by, why) = (Principal::parse(&e.by)?, Reason::parse(&e.why)?);
            (hold(e.lock, e.claim, e.token)?, EventKind::Broken { by, why, held_ms: e.held_ms })
        }
        Kind::HandedOver(e) => {
            let (was, from) = (claim(e.was)?, FencingToken::from_u64(e.previous_token)?);
            let kind = EventKind::HandedOver { was, from, mode: mode(e.mode)?, by: Principal::parse(&e.by)? };
            (hold(e.lock, e.claim, e.token)?, kind)
        }
        Kind::RevokeRequested(e) => {
            let (by, why) = (Principal::parse(&e.by)?, Reason::parse(&e.why)?);
            (hold(e.lock, e.claim, e.token)?, EventKind::RevokeRequested { by, why })
        }
        Kind::ValueChanged(e) => (hold(e.lock, e.claim, e.token)?, EventKind::ValueChanged),
        Kind::LimitChanged(e) => {
            let subject = Subject::Lock { lock: lock(e.lock)?, claim: None, token: None };
            (subject, EventKind::LimitChanged { limit: e.limit })
        }
        Kind::Reopened(e) => {
            let token = Some(FencingToken::from_u64(e.token)?);
            (Subject::Lock { lock: lock(e.lock)?, claim: None, token }, EventKind::Reopened)
        }
        Kind::SessionOpened(session) => (Subject::Session(SessionId::from_u64(session)?), EventKind::SessionOpened),
        Kind::SessionEnded(e) => {
            let (reason, why) = (end(e.reason)?, e.why.as_deref().map(Reason::parse).transpose()?);
            (Subject::Session(SessionId::from_u64(e.session)?), EventKind::SessionEnded { reason, why })
        }
        Kind::LeaderlessGapMs(gap_ms) => (Subject::Cluster, EventKind::LeaderlessGap { gap_ms }),
    })
}

fn wait(key: Option<pb::LockKey>, of: Option<pb::Claim>) -> Result<Subject, Invalid> {
    Ok(Subject::wait(&lock(key)?, claim(of)?))
}

fn hold(key: Option<pb::LockKey>, of: Option<pb::Claim>, token: u64) -> Result<Subject, Invalid> {
    Ok(Subject::hold(&lock(key)?, claim(of)?, FencingToken::from_u64(token)?))
}

fn lock(lock: Option<pb::LockKey>) -> Result<LockKey, Invalid> {
    required("lock", lock)?.try_into()
}

fn claim(claim: Option<pb::Claim>) -> Result<Claim, Invalid> {
    required("claim", claim)?.try_into()
}

fn mode(mode: Option<pb::Mode>) -> Result<Mode, Invalid> {
    required("mode", mode)?.try_into()
}

fn end(reason: i32) -> Result<EndReason, Invalid> {
    EndReason::from_wire("reason", reason)
}
