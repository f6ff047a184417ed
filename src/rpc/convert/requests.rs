//! Commands as they come in from callers, and as a client sends them.

use super::scalars::required;
use super::table::Wire;
use crate::model::{
    Access, Acquire, Alter, Alteration, Command, EndSession, Extras, Invalid, LockName, Manage, Managing, Namespace,
    OpenSession, Release, RequestId, SessionId, Setting, SmallMap,
};
use crate::rpc::pb;
use crate::service::{Call, ClaimRef};

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
        BreakHold = Break { token, why },
        Ask = Ask { token, why },
        HandOver = HandOver { token, to },
    }
}

wire_messages! {
    EndSession = EndSessionRequest { namespace, session, why }
    Manage = ManageRequest { lock, what }
    ClaimRef = WaitOutcomeRequest { lock, claim }
    Extras = Extras {
        reentry, delay_ms, value, parent, at_least_ms, at_most_ms, cached; unfair: fairness, wait_in_cycles: deadlock
    }
}

/// `read: context: Type, Model { shape } = Message { fields; (two fields): together }`, as in `wire_shapes`, where a stream or
/// a call says the session or the namespace beside the message.
macro_rules! wire_framed {
    ($(
        $read:ident: $context:ident: $of:ty,
        $model:ident $shape:tt = $wire:ident { $($field:ident),* $(; ($one:ident, $other:ident): $pair:ident)? }
    )*) => { $(
        /// The command that this message of a session or of a namespace asks for.
        pub(in crate::rpc) fn $read($context: $of, asked: pb::$wire) -> Result<$model, Invalid> {
            let pb::$wire { $($field,)* $($one, $other)? } = asked;
            $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
            $(let $pair = Wire::from_wire(stringify!($pair), ($one, $other))?;)?
            Ok($model $shape)
        }

        impl From<&$model> for pb::$wire {
            fn from($model $shape: &$model) -> Self {
                let _ = $context;
                $(let ($one, $other) = Wire::to_wire($pair);)?
                Self { $($field: Wire::to_wire($field),)* $($one, $other)? }
            }
        }
    )* };
}

wire_framed! {
    open_session: namespace: Namespace,
        OpenSession { namespace, handle, instance, ttl_ms, disconnect_grace_ms, metadata, accepts_hand_over }
        = StreamOpen { handle, instance, ttl_ms, disconnect_grace_ms, metadata, accepts_hand_over }
    stream_acquire: session: SessionId,
        Acquire {
            request: RequestId { session, number: request }, answered_below, locks, owner, patience: wait_ms, metadata, lease_ms, extras
        } = StreamAcquire { request, answered_below, owner, wait_ms, metadata, extras, lease_ms; (lock, mode): locks }
    stream_acquire_set: session: SessionId,
        Acquire {
            request: RequestId { session, number: request }, answered_below, locks: members, owner, patience: wait_ms, metadata, lease_ms,
            extras
        } = StreamAcquireSet { request, answered_below, members, owner, wait_ms, metadata, extras, lease_ms }
    stream_release: session: SessionId,
        Release { request: RequestId { session, number: request }, answered_below, name: lock, token }
        = StreamRelease { request, answered_below, lock, token }
    stream_alter: session: SessionId,
        Alter { request: RequestId { session, number: request }, answered_below, name: lock, what }
        = StreamAlter { request, answered_below, lock, what }
}

/// An acquire of one lock, as it is sent; `None` for a set.
pub(in crate::rpc) fn acquire_of_one(acquire: &Acquire) -> Option<pb::StreamAcquire> {
    acquire.locks.only().map(|_| acquire.into())
}

wire_leaves! {
    // The one lock of an acquire.
    SmallMap<LockName, Access>: (String, Option<pb::Mode>),
        locks => locks.iter().next().map(|(lock, mode)| (lock.to_wire(), mode.to_wire())).unwrap_or_default(),
        (_, (lock, mode)) => Ok((LockName::parse(&lock)?, Access::from_wire("mode", required("mode", mode)?)?).into());
    // The locks of a set. The node checks how many there may be, for callers of every kind.
    SmallMap<LockName, Access>: Vec<pb::SetMember>,
        locks => locks.iter().map(|(lock, mode)| pb::SetMember { lock: lock.to_wire(), mode: mode.to_wire() }).collect(),
        (_, members) => {
            let mut locks = SmallMap::new();
            for pb::SetMember { lock, mode } in members {
                if locks.insert(LockName::parse(&lock)?, Wire::from_wire("mode", mode)?).is_some() {
                    return Err(Invalid::new("locks", "each name once in a set", format!("{lock:?} twice")));
                }
            }
            Ok(locks)
        };
    Setting: pb::ChangeSettingRequest, setting => {
        let Setting::TtlMax(ttl_max_ms) = *setting;
        pb::ChangeSettingRequest { setting: Some(pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms)) }
    }, (_, pb::ChangeSettingRequest { setting }) => {
        let pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms) = required("setting", setting)?;
        Ok(Setting::TtlMax(ttl_max_ms))
    };
}

wire_whole! { Setting: pb::ChangeSettingRequest, "setting"; }

/// The command that closes a session.
pub(in crate::rpc) fn stream_close(session: SessionId, end: i32) -> Result<Command, Invalid> {
    Ok(Command::CloseSession { session, end: Wire::from_wire("end", end)? })
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
    ChangeSetting: ChangeSettingRequest;
}
