//! Commands of programs without a stream, as they come in and are sent.

use super::requests::{open_session, stream_acquire, stream_acquire_set, stream_alter, stream_close, stream_release};
use super::scalars::{namespace, required};
use super::table::Wire;
use crate::model::{Command, Handle, Invalid, LockKey, LogTime, Mode, Patience, RequestId, SessionId, TakeLease};
use crate::rpc::pb;
use crate::service::{Call, Proof, ServiceError};

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

impl TryFrom<pb::OpenSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(pb::OpenSessionRequest { namespace: of, open }: pb::OpenSessionRequest) -> Result<Self, Invalid> {
        Ok(Call::new(Command::OpenSession(open_session(namespace(&of)?, required("open", open)?)?)))
    }
}
