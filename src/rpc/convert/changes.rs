//! Events of what becomes of a hold between its grant and its end.

use super::event::{claim as read_claim, lock as read_lock, to_claim, to_lock};
use super::part::required;
use crate::model::{Claim, EventKind, FencingToken, Invalid, LockKey, Mode, Principal, Reason};
use crate::rpc::pb;
use crate::rpc::pb::event::Kind;

/// See [`EventKind::Upgraded`].
pub(super) fn upgraded(lock: &LockKey, claim: Claim, from: FencingToken, token: FencingToken, waited_ms: u64) -> Kind {
    Kind::Upgraded(pb::EventUpgraded {
        lock: to_lock(lock),
        claim: to_claim(claim),
        from: from.as_u64(),
        token: token.as_u64(),
        waited_ms,
    })
}

/// See [`EventKind::Upgraded`].
pub(super) fn read_upgraded(event: pb::EventUpgraded) -> Result<EventKind, Invalid> {
    Ok(EventKind::Upgraded {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        from: FencingToken::from_u64(event.from)?,
        token: FencingToken::from_u64(event.token)?,
        waited_ms: event.waited_ms,
    })
}

/// See [`EventKind::Downgraded`].
pub(super) fn downgraded(lock: &LockKey, claim: Claim, token: FencingToken) -> Kind {
    Kind::Downgraded(pb::EventDowngraded { lock: to_lock(lock), claim: to_claim(claim), token: token.as_u64() })
}

/// See [`EventKind::Downgraded`].
pub(super) fn read_downgraded(event: pb::EventDowngraded) -> Result<EventKind, Invalid> {
    Ok(EventKind::Downgraded {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        token: FencingToken::from_u64(event.token)?,
    })
}

/// See [`EventKind::PermitsReturned`].
pub(super) fn permits_returned(lock: &LockKey, claim: Claim, token: FencingToken, count: u32) -> Kind {
    let (lock, claim, token) = (to_lock(lock), to_claim(claim), token.as_u64());
    Kind::PermitsReturned(pb::EventPermitsReturned { lock, claim, token, count })
}

/// See [`EventKind::PermitsReturned`].
pub(super) fn read_permits_returned(event: pb::EventPermitsReturned) -> Result<EventKind, Invalid> {
    Ok(EventKind::PermitsReturned {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        token: FencingToken::from_u64(event.token)?,
        count: event.count,
    })
}

/// See [`EventKind::Resumed`].
pub(super) fn resumed(lock: &LockKey, claim: Claim, from: FencingToken, token: FencingToken, mode: Mode) -> Kind {
    Kind::Resumed(pb::EventResumed {
        lock: to_lock(lock),
        claim: to_claim(claim),
        from: from.as_u64(),
        token: token.as_u64(),
        mode: Some(mode.into()),
    })
}

/// See [`EventKind::Resumed`].
pub(super) fn read_resumed(event: pb::EventResumed) -> Result<EventKind, Invalid> {
    Ok(EventKind::Resumed {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        from: FencingToken::from_u64(event.from)?,
        token: FencingToken::from_u64(event.token)?,
        mode: required("mode", event.mode)?.try_into()?,
    })
}

/// See [`EventKind::Broken`].
pub(super) fn broken(
    lock: &LockKey,
    claim: Claim,
    token: FencingToken,
    by: &Principal,
    why: &Reason,
    held_ms: u64,
) -> Kind {
    Kind::Broken(pb::EventBroken {
        lock: to_lock(lock),
        claim: to_claim(claim),
        token: token.as_u64(),
        by: by.to_string(),
        why: why.as_str().to_owned(),
        held_ms,
    })
}

/// See [`EventKind::Broken`].
pub(super) fn read_broken(event: pb::EventBroken) -> Result<EventKind, Invalid> {
    Ok(EventKind::Broken {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        token: FencingToken::from_u64(event.token)?,
        by: Principal::parse(&event.by)?,
        why: Reason::parse(&event.why)?,
        held_ms: event.held_ms,
    })
}

/// See [`EventKind::HandedOver`].
pub(super) fn handed_over(
    lock: &LockKey,
    (claim, was): (Claim, Claim),
    (from, token): (FencingToken, FencingToken),
    mode: Mode,
    by: &Principal,
) -> Kind {
    Kind::HandedOver(pb::EventHandedOver {
        lock: to_lock(lock),
        claim: to_claim(claim),
        from: from.as_u64(),
        token: token.as_u64(),
        mode: Some(mode.into()),
        by: by.to_string(),
        was: to_claim(was),
    })
}

/// See [`EventKind::HandedOver`].
pub(super) fn read_handed_over(event: pb::EventHandedOver) -> Result<EventKind, Invalid> {
    Ok(EventKind::HandedOver {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        from: FencingToken::from_u64(event.from)?,
        token: FencingToken::from_u64(event.token)?,
        mode: required("mode", event.mode)?.try_into()?,
        by: Principal::parse(&event.by)?,
        was: read_claim(event.was)?,
    })
}

/// See [`EventKind::RevokeRequested`].
pub(super) fn revoke_requested(
    lock: &LockKey,
    claim: Claim,
    token: FencingToken,
    by: &Principal,
    why: &Reason,
) -> Kind {
    Kind::RevokeRequested(pb::EventRevokeRequested {
        lock: to_lock(lock),
        claim: to_claim(claim),
        token: token.as_u64(),
        by: by.to_string(),
        why: why.as_str().to_owned(),
    })
}

/// See [`EventKind::RevokeRequested`].
pub(super) fn read_revoke_requested(event: pb::EventRevokeRequested) -> Result<EventKind, Invalid> {
    Ok(EventKind::RevokeRequested {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        token: FencingToken::from_u64(event.token)?,
        by: Principal::parse(&event.by)?,
        why: Reason::parse(&event.why)?,
    })
}

/// See [`EventKind::ValueChanged`].
pub(super) fn value_changed(lock: &LockKey, claim: Claim, token: FencingToken) -> Kind {
    Kind::ValueChanged(pb::EventValueChanged { lock: to_lock(lock), claim: to_claim(claim), token: token.as_u64() })
}

/// See [`EventKind::ValueChanged`].
pub(super) fn read_value_changed(event: pb::EventValueChanged) -> Result<EventKind, Invalid> {
    Ok(EventKind::ValueChanged {
        lock: read_lock(event.lock)?,
        claim: read_claim(event.claim)?,
        token: FencingToken::from_u64(event.token)?,
    })
}

/// See [`EventKind::LimitChanged`].
pub(super) fn limit_changed(lock: &LockKey, limit: Option<u32>) -> Kind {
    Kind::LimitChanged(pb::EventLimitChanged { lock: to_lock(lock), limit })
}

/// See [`EventKind::LimitChanged`].
pub(super) fn read_limit_changed(event: pb::EventLimitChanged) -> Result<EventKind, Invalid> {
    Ok(EventKind::LimitChanged { lock: read_lock(event.lock)?, limit: event.limit })
}

/// See [`EventKind::Reopened`].
pub(super) fn reopened(lock: &LockKey, token: FencingToken) -> Kind {
    Kind::Reopened(pb::EventReopened { lock: to_lock(lock), token: token.as_u64() })
}

/// See [`EventKind::Reopened`].
pub(super) fn read_reopened(event: pb::EventReopened) -> Result<EventKind, Invalid> {
    Ok(EventKind::Reopened { lock: read_lock(event.lock)?, token: FencingToken::from_u64(event.token)? })
}
