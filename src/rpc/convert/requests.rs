//! Commands as they come in from callers, and as a client sends them.

use super::scalars::{namespace, required};
use super::table::{Wire, must_be_set, wire_messages, wire_oneof, wire_shapes, wire_whole};
use crate::model::{
    Access, Acquire, Alter, Alteration, Command, EndSession, Extras, FencingToken, Handle, Invalid, LockKey, LockName,
    LogTime, Manage, Managing, Mode, Namespace, OpenSession, Patience, Query, Release, RequestId, SessionId, Setting,
    SmallMap, TakeLease,
};
use crate::rpc::pb;
use crate::service::{Call, ClaimRef, Proof, ServiceError};

wire_oneof! {
    Alteration = stream_alter::What {
        Downgrade = Downgrade { token },
        Upgrade = Upgrade { token; wait_ms: patience },
        Resume = Resume { token, handle, lease_ms },
        SetValue = SetValue { token, value },
        ReturnPermits = ReturnPermits { token, count },
    }
}

wire_oneof! {
    Managing = manage_request::What {
        SetLimit { limit },
        RemoveLimit,
        BreakHold = Break { token, why } without dry_run,
        Ask = Ask { token, why },
        HandOver = HandOver { token, to },
    }
}

wire_messages! {
    EndSession = EndSessionRequest { namespace, session, why }
}

wire_shapes! {
    Manage { lock: LockKey { namespace, name: lock }, what } = ManageRequest { namespace, lock, what }
    ClaimRef { lock: LockKey { namespace, name: lock }, claim } = WaitOutcomeRequest { namespace, lock, claim }
}

/// What a stream or a call says beside the message: the session or the namespace. Otherwise as `wire_shapes`.
macro_rules! wire_framed {
    ($($read:ident: $context:ident: $of:ty, $model:ident $shape:tt = $wire:ident { $($field:ident),* })*) => { $(
        /// The command that this message of a session or of a namespace asks for.
        pub(in crate::rpc) fn $read($context: $of, asked: pb::$wire) -> Result<$model, Invalid> {
            let pb::$wire { $($field),* } = asked;
            $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
            Ok($model $shape)
        }

        impl From<&$model> for pb::$wire {
            fn from($model $shape: &$model) -> Self {
                let _ = $context;
                Self { $($field: Wire::to_wire($field)),* }
            }
        }
    )* };
}

wire_framed! {
    open_session: namespace: Namespace,
        OpenSession { namespace, handle, instance, ttl_ms, disconnect_grace_ms, metadata, accepts_hand_over }
        = StreamOpen { handle, instance, ttl_ms, disconnect_grace_ms, metadata, accepts_hand_over }
    stream_release: session: SessionId,
        Release { request: RequestId { session, number: request }, answered_below, name: lock, token }
        = StreamRelease { request, answered_below, lock, token }
    stream_alter: session: SessionId,
        Alter { request: RequestId { session, number: request }, answered_below, name: lock, what }
        = StreamAlter { request, answered_below, lock, what }
}

/// The choices of an acquire that few callers make, and the lease that stands among them on the wire.
fn extras(wire: Option<pb::Extras>) -> Result<(Option<Box<Extras>>, Option<u64>), Invalid> {
    let Some(wire) = wire else { return Ok((None, None)) };
    let pb::Extras { reentry, unfair, lease_ms, delay_ms, value, parent, wait_in_cycles, at_least_ms, at_most_ms } =
        wire;
    let chosen = Extras {
        reentry: Wire::from_wire("reentry", reentry)?,
        fairness: Wire::from_wire("unfair", unfair)?,
        delay_ms,
        value: Wire::from_wire("value", value)?,
        parent: Wire::from_wire("parent", parent)?,
        deadlock: Wire::from_wire("wait_in_cycles", wait_in_cycles)?,
        at_least_ms,
        at_most_ms,
    };
    Ok(((chosen != *Extras::PLAIN).then(|| Box::new(chosen)), lease_ms))
}

/// The same as it is sent; `None` for an acquire that makes none of the choices.
fn chosen(extras: Option<&Extras>, lease_ms: Option<u64>) -> Option<pb::Extras> {
    if extras.is_none() && lease_ms.is_none() {
        return None;
    }
    let Extras { reentry, fairness, delay_ms, value, parent, deadlock, at_least_ms, at_most_ms } =
        extras.unwrap_or(Extras::PLAIN);
    Some(pb::Extras {
        reentry: reentry.to_wire(),
        unfair: fairness.to_wire(),
        lease_ms,
        delay_ms: *delay_ms,
        value: value.to_wire(),
        parent: parent.to_wire(),
        wait_in_cycles: deadlock.to_wire(),
        at_least_ms: *at_least_ms,
        at_most_ms: *at_most_ms,
    })
}

/// A session's acquire of one lock.
pub(in crate::rpc) fn stream_acquire(session: SessionId, asked: pb::StreamAcquire) -> Result<Acquire, Invalid> {
    let pb::StreamAcquire { request, answered_below, lock, mode, owner, wait_ms, metadata, extras: chosen } = asked;
    let access: Access = Wire::from_wire("mode", mode)?;
    let (extras, lease_ms) = extras(chosen)?;
    Ok(Acquire {
        request: RequestId { session, number: request },
        answered_below,
        locks: (LockName::parse(&lock)?, access).into(),
        owner: Wire::from_wire("owner", owner)?,
        patience: Wire::from_wire("wait_ms", wait_ms)?,
        metadata: Wire::from_wire("metadata", metadata)?,
        lease_ms,
        extras,
    })
}

/// An acquire of one lock, as it is sent; `None` for a set.
pub(in crate::rpc) fn acquire_of_one(acquire: &Acquire) -> Option<pb::StreamAcquire> {
    let Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras } = acquire;
    let (name, access) = locks.only()?;
    Some(pb::StreamAcquire {
        request: request.number,
        answered_below: *answered_below,
        lock: name.to_wire(),
        mode: access.to_wire(),
        owner: owner.to_wire(),
        wait_ms: patience.to_wire(),
        metadata: metadata.to_wire(),
        extras: chosen(extras.as_deref(), *lease_ms),
    })
}

/// A session's acquire of several locks. The node checks how many there may be, for callers of every kind.
pub(in crate::rpc) fn stream_acquire_set(session: SessionId, asked: pb::StreamAcquireSet) -> Result<Acquire, Invalid> {
    let pb::StreamAcquireSet { request, answered_below, members, owner, wait_ms, metadata, extras: chosen } = asked;
    let mut locks = SmallMap::new();
    for pb::SetMember { lock, mode } in members {
        if locks.insert(LockName::parse(&lock)?, Wire::from_wire("mode", mode)?).is_some() {
            return Err(Invalid::new("locks", "each name once in a set", format!("{lock:?} twice")));
        }
    }
    let (extras, lease_ms) = extras(chosen)?;
    Ok(Acquire {
        request: RequestId { session, number: request },
        answered_below,
        locks,
        owner: Wire::from_wire("owner", owner)?,
        patience: Wire::from_wire("wait_ms", wait_ms)?,
        metadata: Wire::from_wire("metadata", metadata)?,
        lease_ms,
        extras,
    })
}

impl From<&Acquire> for pb::StreamAcquireSet {
    fn from(acquire: &Acquire) -> Self {
        let Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras } = acquire;
        let member = |(lock, mode): (&LockName, &Access)| pb::SetMember { lock: lock.to_wire(), mode: mode.to_wire() };
        Self {
            request: request.number,
            answered_below: *answered_below,
            members: locks.iter().map(member).collect(),
            owner: owner.to_wire(),
            wait_ms: patience.to_wire(),
            metadata: metadata.to_wire(),
            extras: chosen(extras.as_deref(), *lease_ms),
        }
    }
}

/// The command that closes a session.
pub(in crate::rpc) fn stream_close(session: SessionId, end: i32) -> Result<Command, Invalid> {
    Ok(Command::CloseSession { session, end: Wire::from_wire("end", end)? })
}

/// A command of a session that brings its proof along, by the field that says what is asked.
macro_rules! session_calls {
    ($($wire:ident.$part:ident of $session:ident => $command:expr;)*) => { $(
        impl TryFrom<pb::$wire> for Call {
            type Error = Invalid;
            fn try_from(asked: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { namespace: of, session: $session, handle, $part } = asked;
                let $session = SessionId::from_u64($session)?;
                let proof = Proof::Handle { handle: Handle::parse(&handle)?, namespace: namespace(&of)? };
                Ok(Call { proof, ..Call::new($command) })
            }
        }
    )* };
}

session_calls! {
    SessionAcquireRequest.acquire of session =>
        Command::Acquire(stream_acquire(session, required("acquire", acquire)?)?);
    SessionAcquireSetRequest.acquire of session =>
        Command::Acquire(stream_acquire_set(session, required("acquire", acquire)?)?);
    SessionReleaseRequest.release of session =>
        Command::Release(stream_release(session, required("release", release)?)?);
    SessionAlterRequest.alter of session => Command::Alter(stream_alter(session, required("alter", alter)?)?);
    SessionCancelRequest.request of session => Command::Cancel { request: RequestId { session, number: request } };
    CloseSessionRequest.end of session => stream_close(session, end)?;
}

/// A command that names its lock, and when it was first sent; what follows `||` is meant where a field is absent.
macro_rules! sessionless_calls {
    ($(
        $variant:ident $shape:tt = $wire:ident { $($field:ident),* } $(|| { $($absent:ident: $default:expr),* })?
    )*) => { $(
        impl TryFrom<pb::$wire> for Call {
            type Error = Invalid;
            fn try_from(asked: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { $($field,)* age_ms, since_ms } = asked;
                $($(let $absent = $absent.or_else(|| Wire::<Option<_>>::to_wire(&$default));)*)?
                $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                Ok(Call { age_ms, since: since_ms.map(LogTime), ..Call::new(Command::$variant $shape) })
            }
        }

        impl TryFrom<&Call> for pb::$wire {
            type Error = ServiceError;
            fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
                let Command::$variant $shape = command else {
                    return Err(ServiceError::Internal(concat!("not for ", stringify!($wire)).to_owned()));
                };
                Ok(Self { $($field: Wire::to_wire($field),)* age_ms: *age_ms, since_ms: since.to_wire() })
            }
        }
    )* };
}

sessionless_calls! {
    TakeLease(TakeLease {
        lock: LockKey { namespace, name: lock }, take, handle, access: mode, lease_ms, patience: wait_ms, metadata
    }) = AcquireRequest { namespace, lock, take, handle, mode, lease_ms, wait_ms, metadata }
        || { mode: Mode::Exclusive, wait_ms: Patience::Try }
    DropLease { lock: LockKey { namespace, name: lock }, handle } = ReleaseRequest { namespace, lock, handle }
    CancelTake { lock: LockKey { namespace, name: lock }, take, handle } = WithdrawRequest { namespace, lock, take, handle }
}

/// A command that is the whole request.
macro_rules! plain_calls {
    ($($variant:ident: $wire:ident;)*) => { $(
        impl TryFrom<pb::$wire> for Call {
            type Error = Invalid;
            fn try_from(asked: pb::$wire) -> Result<Self, Invalid> {
                Ok(Call::new(Command::$variant(asked.try_into()?)))
            }
        }
    )* };
}

plain_calls! {
    Manage: ManageRequest;
    EndSession: EndSessionRequest;
    OpenSession: OpenSessionRequest;
    ChangeSetting: ChangeSettingRequest;
}

impl TryFrom<pb::OpenSessionRequest> for OpenSession {
    type Error = Invalid;
    fn try_from(pb::OpenSessionRequest { namespace: of, open }: pb::OpenSessionRequest) -> Result<Self, Invalid> {
        open_session(namespace(&of)?, required("open", open)?)
    }
}

impl TryFrom<pb::ChangeSettingRequest> for Setting {
    type Error = Invalid;
    fn try_from(pb::ChangeSettingRequest { setting }: pb::ChangeSettingRequest) -> Result<Self, Invalid> {
        let pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms) = required("setting", setting)?;
        Ok(Setting::TtlMax(ttl_max_ms))
    }
}

impl From<Setting> for pb::ChangeSettingRequest {
    fn from(Setting::TtlMax(ttl_max_ms): Setting) -> Self {
        Self { setting: Some(pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms)) }
    }
}

/// The question that a dry run asks; `None` for what is to be done.
pub(in crate::rpc) fn read_dry_run(asked: &pb::ManageRequest) -> Result<Option<Query>, Invalid> {
    use pb::manage_request::What;
    let pb::ManageRequest { namespace, lock, what: Some(What::BreakHold(pb::Break { token, why: _, dry_run: true })) } =
        asked
    else {
        return Ok(None);
    };
    let lock = super::scalars::lock_key(namespace, lock)?;
    Ok(Some(Query::WouldBreak { lock, token: FencingToken::from_u64(*token)? }))
}

/// A break of this hold as a dry run.
pub(in crate::rpc) fn dry_run(LockKey { namespace, name }: &LockKey, token: FencingToken) -> pb::ManageRequest {
    let of_hold = pb::Break { token: token.as_u64(), why: String::new(), dry_run: true };
    let what = Some(pb::manage_request::What::BreakHold(of_hold));
    pb::ManageRequest { namespace: namespace.to_wire(), lock: name.to_wire(), what }
}
