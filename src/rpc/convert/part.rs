//! The small parts that many messages share: names, modes, claims, reasons.

use std::fmt::Debug;

use bytes::Bytes;

use crate::limits;
use crate::model::{
    Access, Claim, EndReason, FencingToken, Health, HolderView, Invalid, Kind, LeaseRequestId, LockKey, LockName,
    LogTime, Metadata, Mode, Namespace, Owner, Parent, Patience, Position, Principal, RequestId, SessionClose,
    SessionId, WaitEndReason, WaitReason, WaiterView,
};
use crate::rpc::pb;
use crate::service::{Freshness, LeaderHint};

/// The namespace of a request; empty means the default one.
pub(in crate::rpc) fn namespace(text: &str) -> Result<Namespace, Invalid> {
    if text.is_empty() { Ok(Namespace::default()) } else { Namespace::parse(text) }
}

/// A lock of a request's namespace.
pub(in crate::rpc) fn lock_key(namespace_text: &str, name: &str) -> Result<LockKey, Invalid> {
    Ok(LockKey { namespace: namespace(namespace_text)?, name: LockName::parse(name)? })
}

/// A part that must be there.
pub(in crate::rpc) fn required<T>(field: &str, part: Option<T>) -> Result<T, Invalid> {
    part.ok_or_else(|| Invalid::new(field, "must be set", "nothing"))
}

/// A 128-bit number: 16 bytes, the highest first.
pub(in crate::rpc) fn read_u128(field: &str, bytes: &[u8]) -> Result<u128, Invalid> {
    let whole = bytes.try_into().map_err(|_| Invalid::new(field, "16 bytes", format!("{} bytes", bytes.len())))?;
    Ok(u128::from_be_bytes(whole))
}

/// The 16 bytes of a 128-bit number.
pub(in crate::rpc) fn bytes_of(number: u128) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// The identity of a take.
pub(in crate::rpc) fn take_id(bytes: &[u8]) -> Result<LeaseRequestId, Invalid> {
    read_u128("take", bytes).map(LeaseRequestId)
}

/// Rows of a page: 0 means as many as there may be.
pub(in crate::rpc) fn rows(asked: u32) -> Result<u32, Invalid> {
    let most = limits::PAGE_ROWS_MAX as u32;
    match asked {
        0 => Ok(most),
        asked if asked <= most => Ok(asked),
        asked => Err(Invalid::new("rows", format!("at most {most}"), asked)),
    }
}

/// A line of execution that waits for another.
pub(super) fn parent(parent: pb::Parent) -> Result<Parent, Invalid> {
    Ok(Parent { session: SessionId::from_u64(parent.session)?, owner: Owner::parse(&parent.owner)? })
}

impl From<&Parent> for pb::Parent {
    fn from(parent: &Parent) -> Self {
        Self { session: parent.session.as_u64(), owner: parent.owner.to_string() }
    }
}

/// A text that is given or not.
pub(super) fn owner(text: Option<String>) -> Result<Option<Owner>, Invalid> {
    text.map(|text| Owner::parse(&text)).transpose()
}

/// A session's public id that is given or not.
pub(super) fn session(number: Option<u64>) -> Result<Option<SessionId>, Invalid> {
    number.map(SessionId::from_u64).transpose()
}

/// A value of an enum that this version knows.
pub(in crate::rpc) fn known<E: TryFrom<i32>>(field: &str, number: i32) -> Result<E, Invalid> {
    E::try_from(number).map_err(|_| unknown(field, number))
}

/// The refusal of an unspecified or unknown value.
pub(super) fn unknown(field: &str, value: impl Debug) -> Invalid {
    Invalid::new(field, "a value that this version knows", format!("{value:?}"))
}

impl From<&LockKey> for pb::LockKey {
    fn from(lock: &LockKey) -> Self {
        Self { namespace: lock.namespace.to_string(), name: lock.name.to_string() }
    }
}

impl TryFrom<pb::LockKey> for LockKey {
    type Error = Invalid;
    fn try_from(lock: pb::LockKey) -> Result<Self, Invalid> {
        lock_key(&lock.namespace, &lock.name)
    }
}

impl From<&Metadata> for pb::Metadata {
    fn from(metadata: &Metadata) -> Self {
        Self {
            who: metadata.who.to_string(),
            why: metadata.why.to_string(),
            host: metadata.host.to_string(),
            pid: metadata.pid,
            process: metadata.process.to_string(),
            trace: metadata.trace.to_string(),
        }
    }
}

impl TryFrom<pb::Metadata> for Metadata {
    type Error = Invalid;
    fn try_from(metadata: pb::Metadata) -> Result<Self, Invalid> {
        Metadata {
            who: metadata.who.into(),
            why: metadata.why.into(),
            host: metadata.host.into(),
            pid: metadata.pid,
            process: metadata.process.into(),
            trace: metadata.trace.into(),
        }
        .checked()
    }
}

/// What a caller says of itself; a caller need not say anything.
pub(super) fn metadata(metadata: Option<pb::Metadata>) -> Result<Metadata, Invalid> {
    metadata.map_or_else(|| Ok(Metadata::default()), Metadata::try_from)
}

impl From<Mode> for pb::Mode {
    fn from(mode: Mode) -> Self {
        Access::from(mode).into()
    }
}

impl TryFrom<pb::Mode> for Mode {
    type Error = Invalid;
    fn try_from(mode: pb::Mode) -> Result<Self, Invalid> {
        Access::try_from(mode).map(|access| access.mode)
    }
}

impl From<Access> for pb::Mode {
    fn from(Access { mode, limit }: Access) -> Self {
        let how = match mode {
            Mode::Exclusive => pb::mode::How::Exclusive(pb::Empty {}),
            Mode::Shared => pb::mode::How::Shared(pb::Empty {}),
            Mode::Permits(count) => pb::mode::How::Permits(pb::Permits { count, limit }),
        };
        Self { how: Some(how) }
    }
}

impl TryFrom<pb::Mode> for Access {
    type Error = Invalid;
    fn try_from(mode: pb::Mode) -> Result<Self, Invalid> {
        match required("mode", mode.how)? {
            pb::mode::How::Exclusive(_) => Ok(Mode::Exclusive.into()),
            pb::mode::How::Shared(_) => Ok(Mode::Shared.into()),
            pb::mode::How::Permits(pb::Permits { count, limit }) => {
                bounded_permits("permits", count)?;
                limit.map(|limit| bounded_permits("limit", limit)).transpose()?;
                Ok(Access::permits(count, limit))
            }
        }
    }
}

fn bounded_permits(field: &str, count: u32) -> Result<(), Invalid> {
    if (1..=limits::PERMITS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("1 to {}", limits::PERMITS_MAX), count))
}

/// How long to wait: 0 is a try, and nothing means as long as the session lives.
pub(in crate::rpc) fn patience(wait_ms: Option<u64>) -> Result<Patience, Invalid> {
    match wait_ms {
        None => Ok(Patience::Session),
        Some(0) => Ok(Patience::Try),
        Some(ms) if ms <= limits::PATIENCE_MS_MAX => Ok(Patience::For { ms }),
        Some(ms) => Err(Invalid::new("wait_ms", format!("at most {} ms", limits::PATIENCE_MS_MAX), ms)),
    }
}

/// The same, as it is sent.
pub(in crate::rpc) fn wait_ms(patience: Patience) -> Option<u64> {
    match patience {
        Patience::Try => Some(0),
        Patience::For { ms } => Some(ms),
        Patience::Session => None,
    }
}

impl From<Claim> for pb::Claim {
    fn from(claim: Claim) -> Self {
        let who = match claim {
            Claim::Request(RequestId { session, number }) => {
                pb::claim::Who::Request(pb::RequestId { session: session.as_u64(), number })
            }
            Claim::Lease(LeaseRequestId(take)) => pb::claim::Who::Take(bytes_of(take)),
        };
        Self { who: Some(who) }
    }
}

impl TryFrom<pb::Claim> for Claim {
    type Error = Invalid;
    fn try_from(claim: pb::Claim) -> Result<Self, Invalid> {
        Ok(match required("claim", claim.who)? {
            pb::claim::Who::Request(pb::RequestId { session, number }) => {
                Claim::Request(RequestId { session: SessionId::from_u64(session)?, number })
            }
            pb::claim::Who::Take(take) => Claim::Lease(take_id(&take)?),
        })
    }
}

impl From<Position> for pb::Position {
    fn from(position: Position) -> Self {
        Self { index: position.index, n: position.n }
    }
}

impl From<pb::Position> for Position {
    fn from(position: pb::Position) -> Self {
        Self { index: position.index, n: position.n }
    }
}

impl From<&LeaderHint> for pb::Leader {
    fn from(leader: &LeaderHint) -> Self {
        Self { node: leader.node, client: leader.client.clone() }
    }
}

impl From<pb::Leader> for LeaderHint {
    fn from(leader: pb::Leader) -> Self {
        Self { node: leader.node, client: leader.client }
    }
}

/// Enums that stand for each other value by value, where the wire's 0 is refused.
macro_rules! same_values {
    ($($model:ident $field:literal $unspecified:ident { $($value:ident),* })*) => { $(
        impl From<$model> for pb::$model {
            fn from(value: $model) -> Self {
                match value { $( $model::$value => pb::$model::$value, )* }
            }
        }
        impl TryFrom<pb::$model> for $model {
            type Error = Invalid;
            fn try_from(value: pb::$model) -> Result<Self, Invalid> {
                match value {
                    pb::$model::$unspecified => Err(unknown($field, "unspecified")),
                    $( pb::$model::$value => Ok($model::$value), )*
                }
            }
        }
    )* };
}
same_values! {
    EndReason "reason" Unspecified { Released, Expired, Lost, Cancelled, Broken, HandedOver, Overtaken, TimeOver }
    WaitEndReason "why" Unspecified { TimedOut, Withdrawn, SessionEnded, HoldEnded, Impossible, Deadlock }
    SessionClose "end" Unspecified { Done, Lost }
    Kind "kind" Unspecified { Lock, Semaphore }
    WaitReason "why" Unspecified { Holds, StandsAhead, Nested, Closed }
    Health "health" Unspecified { Live, Overdue, Disconnected, Lease, Gone }
}

impl From<Freshness> for pb::Freshness {
    fn from(freshness: Freshness) -> Self {
        match freshness {
            Freshness::Linearizable => pb::Freshness::Linearizable,
            Freshness::Stale => pb::Freshness::Stale,
        }
    }
}

impl From<pb::Freshness> for Freshness {
    fn from(freshness: pb::Freshness) -> Self {
        match freshness {
            pb::Freshness::Unspecified | pb::Freshness::Linearizable => Freshness::Linearizable,
            pb::Freshness::Stale => Freshness::Stale,
        }
    }
}

impl From<&HolderView> for pb::Holder {
    fn from(holder: &HolderView) -> Self {
        Self {
            session: holder.session.map(SessionId::as_u64),
            owner: holder.owner.as_ref().map(ToString::to_string),
            principal: holder.principal.to_string(),
            token: holder.token.as_u64(),
            mode: Some(holder.mode.into()),
            metadata: Some((&holder.metadata).into()),
            since_ms: holder.since.0,
            deadline_ms: holder.deadline.map(|deadline| deadline.0),
        }
    }
}

impl TryFrom<pb::Holder> for HolderView {
    type Error = Invalid;
    fn try_from(holder: pb::Holder) -> Result<Self, Invalid> {
        Ok(Self {
            session: session(holder.session)?,
            owner: owner(holder.owner)?,
            principal: Principal::parse(&holder.principal)?,
            token: FencingToken::from_u64(holder.token)?,
            mode: required("mode", holder.mode)?.try_into()?,
            metadata: metadata(holder.metadata)?,
            since: LogTime(holder.since_ms),
            deadline: holder.deadline_ms.map(LogTime),
        })
    }
}

impl From<&WaiterView> for pb::Waiter {
    fn from(waiter: &WaiterView) -> Self {
        Self {
            place: waiter.place,
            sequence: waiter.sequence,
            session: waiter.session.map(SessionId::as_u64),
            owner: waiter.owner.as_ref().map(ToString::to_string),
            mode: Some(waiter.mode.into()),
            metadata: Some((&waiter.metadata).into()),
            since_ms: waiter.since.0,
        }
    }
}

impl TryFrom<pb::Waiter> for WaiterView {
    type Error = Invalid;
    fn try_from(waiter: pb::Waiter) -> Result<Self, Invalid> {
        Ok(Self {
            place: waiter.place,
            sequence: waiter.sequence,
            session: session(waiter.session)?,
            owner: owner(waiter.owner)?,
            mode: required("mode", waiter.mode)?.try_into()?,
            metadata: metadata(waiter.metadata)?,
            since: LogTime(waiter.since_ms),
        })
    }
}
