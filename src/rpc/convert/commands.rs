//! Commands and renewals.

use std::iter::once;

use super::table::{Wire, required};
use crate::model::{
    Access, Acquire, Alter, Alteration, Attach, Command, DocumentCommand, EndSession, Extras, Grab, Handle, Invalid,
    LockName, Manage, Managing, OpenSession, Release, RenewalTarget, RequestId, SessionId, Setting, SmallMap,
    TakeLease,
};
use crate::rpc::pb;
use crate::rpc::pb::command::Command as Asked;
use crate::rpc::pb::renewal::Target;
use crate::service::{Call, ClaimRef, Proof, RenewalCall, ServiceError};

wire_messages! {
    OpenSession = OpenSession { namespace, handle, instance, ttl_ms, disconnect_grace_ms, metadata, accepts_hand_over }
    Attach = Attach { namespace, session, handle, attempt }
    EndSession = EndSession { namespace, session, why }
    Manage = Manage { lock, what }
    ClaimRef = WaitOutcomeRequest { lock, claim }
    Grab = Grab { lock, ts, metadata, term, prepare, seen }
    Extras = Extras {
        reentry, delay_ms, value, parent, at_least_ms, at_most_ms, cached; unfair: fairness, wait_in_cycles: deadlock
    }
}

wire_oneof! {
    Alteration = alter::What {
        Downgrade = Downgrade { token },
        Upgrade = Upgrade { token; wait_ms: patience },
        Resume = Resume { token, handle, lease_ms },
        SetValue = SetValue { token, value },
        ReturnPermits = ReturnPermits { token, count },
    }
}
wire_oneof! {
    Managing = manage::What {
        SetLimit { limit },
        RemoveLimit,
        BreakHold = Break { token, why },
        Ask = Ask { token, why },
        HandOver = HandOver { token, to },
    }
}
wire_oneof! {
    DocumentCommand = document::What {
        Grab(grab),
        Unlock = Unlock { namespace, ts, name },
        UnlockAll = UnlockAll { namespace, process, term },
        Ping = Process { namespace, process },
        StopPing = Process { namespace, process },
        RemoveExpired = RemoveExpired { lock, token; deadline_ms: deadline },
        SwapValue = SwapValue { lock, handle, seen, value },
        Confirm = Confirm { lock, ts },
    }
}
wire_oneof! { Setting = change_setting::Setting in ChangeSetting.setting { TtlMax(ttl_max) } }

wire_leaves! {
    // The first lock of an acquire is in the message itself; the others of a set follow. The node checks their number,
    // for all callers.
    SmallMap<LockName, Access>: (String, Option<pb::Mode>, Option<u32>, Vec<pb::SetMember>), locks => {
        let mut members = locks.iter().map(|(lock, Access { mode, limit })| {
            pb::SetMember { lock: lock.to_wire(), mode: mode.to_wire(), limit: *limit }
        });
        let pb::SetMember { lock, mode, limit } = members.next().unwrap_or_default();
        (lock, mode, limit, members.collect())
    }, (_, (lock, mode, limit, others)) => {
        let mut locks = Self::new();
        for pb::SetMember { lock, mode, limit } in once(pb::SetMember { lock, mode, limit }).chain(others) {
            let access = Access { mode: Wire::from_wire("mode", mode)?, limit };
            if locks.insert(LockName::parse(&lock)?, access).is_some() {
                return Err(Invalid::new("locks", "each name once in a set", format!("{lock:?} twice")));
            }
        }
        Ok(locks)
    };
    RenewalCall: pb::Renewal, RenewalCall { target, proof, attempt } => {
        let target = match target {
            RenewalTarget::Session(session) => Target::Session(shown(*session, proof).unwrap_or_default()),
            RenewalTarget::Lease { lock, handle, lease_ms } => {
                let (lock, handle) = (lock.to_wire(), handle.to_wire());
                Target::Lease(pb::LeaseTarget { lock, handle, lease_ms: *lease_ms })
            }
            RenewalTarget::Hold { lock, session, token, lease_ms } => {
                let (lock, session, token) = (lock.to_wire(), shown(*session, proof), token.to_wire());
                Target::Hold(pb::HoldTarget { lock, session, token, lease_ms: *lease_ms })
            }
        };
        pb::Renewal { target: Some(target), attempt: *attempt }
    }, (_, pb::Renewal { target, attempt }) => {
        let (target, proof) = match required("target", target)? {
            Target::Session(session) => {
                let (session, proof) = proven(Some(session))?;
                (RenewalTarget::Session(session), proof)
            }
            Target::Lease(pb::LeaseTarget { lock, handle, lease_ms }) => {
                let (lock, handle) = (Wire::from_wire("lock", lock)?, Handle::parse(&handle)?);
                (RenewalTarget::Lease { lock, handle, lease_ms }, Proof::Trusted)
            }
            Target::Hold(pb::HoldTarget { lock, session, token, lease_ms }) => {
                let (lock, token) = (Wire::from_wire("lock", lock)?, Wire::from_wire("token", token)?);
                let (session, proof) = proven(session)?;
                (RenewalTarget::Hold { lock, session, token, lease_ms }, proof)
            }
        };
        Ok(Self { target, proof, attempt })
    };
}

/// Returns the session of a proof, and the proof.
pub(in crate::rpc) fn proven(session: Option<pb::SessionProof>) -> Result<(SessionId, Proof), Invalid> {
    let pb::SessionProof { id, handle, namespace } = required("session", session)?;
    let (handle, namespace) = (Handle::parse(&handle)?, Wire::from_wire("namespace", namespace)?);
    Ok((SessionId::from_u64(id)?, Proof::Handle { handle, namespace }))
}

/// Returns the proof as it is sent; `None` if the path to the node is the proof.
fn shown(session: SessionId, proof: &Proof) -> Option<pb::SessionProof> {
    let Proof::Handle { handle, namespace } = proof else { return None };
    Some(pb::SessionProof { id: session.as_u64(), handle: handle.to_wire(), namespace: namespace.to_wire() })
}

/// `Variant shape = { fields of the message; (several fields): together }`, in which the shape is both a pattern and an
/// expression. First come the commands of a session, then those whose late copies are refused by their age, then those
/// that are a whole message.
macro_rules! wire_commands {
    (
        $session:ident { $($variant:ident $shape:tt = { $($field:ident),* $(; ($($part:ident),+): $whole:ident)? })* }
        $age_ms:ident, $since_ms:ident { $($aged:ident $aged_shape:tt = { $($aged_field:ident),* })* }
        $($plain:ident),*
    ) => {
        /// Converts a received command. The session of a command that needs one is `proven` by its message or by its
        /// stream.
        pub(in crate::rpc) fn call(
            asked: pb::Command,
            proven: impl FnOnce(Option<pb::SessionProof>) -> Result<(SessionId, Proof), Invalid>,
        ) -> Result<Call, Invalid> {
            Ok(match required("command", asked.command)? {
                $(Asked::$variant(pb::$variant { $session, $($field,)* $($($part,)+)? }) => {
                    let ($session, proof) = proven($session)?;
                    $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                    $(let $whole = Wire::from_wire(stringify!($whole), ($($part),+))?;)?
                    Call { proof, ..Call::new(Command::$variant $shape) }
                })*
                $(Asked::$aged(pb::$aged { $age_ms, $since_ms, $($aged_field),* }) => {
                    $(let $aged_field = Wire::from_wire(stringify!($aged_field), $aged_field)?;)*
                    let since = Wire::from_wire(stringify!($since_ms), $since_ms)?;
                    Call { age_ms: $age_ms, since, ..Call::new(Command::$aged $aged_shape) }
                })*
                $(Asked::$plain(command) => Call::new(Command::$plain(Wire::from_wire("command", command)?)),)*
            })
        }

        /// Converts a call to a message with this proof; refused if only a node may make its command.
        pub(in crate::rpc) fn command(call: &Call, proof: &Proof) -> Result<pb::Command, ServiceError> {
            let asked = asked(call, proof).map(|command| pb::Command { command: Some(command) });
            asked.ok_or_else(|| ServiceError::Forbidden { why: "only a node makes this command".to_owned() })
        }

        fn asked(Call { age_ms, since, command, .. }: &Call, proof: &Proof) -> Option<Asked> {
            $(if let Command::$variant $shape = command {
                let $session = shown(*$session, proof);
                $(let ($($part),+) = Wire::to_wire($whole);)?
                let asked = pb::$variant { $session, $($field: Wire::to_wire($field),)* $($($part,)+)? };
                return Some(Asked::$variant(asked));
            })*
            $(if let Command::$aged $aged_shape = command {
                let ($age_ms, $since_ms) = (*age_ms, since.to_wire());
                return Some(Asked::$aged(pb::$aged { $age_ms, $since_ms, $($aged_field: Wire::to_wire($aged_field)),* }));
            })*
            $(if let Command::$plain(command) = command {
                return Some(Asked::$plain(command.to_wire()));
            })*
            None
        }
    };
}

wire_commands! {
    session {
        CloseSession { session, end } = { end }
        Acquire(Acquire {
            request: RequestId { session, number: request }, answered_below, locks, owner, patience: wait_ms, metadata, lease_ms,
            extras
        }) = { request, answered_below, owner, wait_ms, metadata, lease_ms, extras; (lock, mode, limit, others): locks }
        Release(Release { request: RequestId { session, number: request }, answered_below, name: lock, token, acquire })
            = { request, answered_below, lock, token, acquire }
        Cancel { request: RequestId { session, number: request } } = { request }
        Alter(Alter { request: RequestId { session, number: request }, answered_below, name: lock, what })
            = { request, answered_below, lock, what }
    }
    age_ms, since_ms {
        TakeLease(TakeLease {
            lock, take, handle, access: Access { mode, limit }, lease_ms, patience: wait_ms, metadata, claim_ms
        }) = { lock, take, handle, mode, limit, lease_ms, wait_ms, metadata, claim_ms }
        CancelTake { lock, take, handle } = { lock, take, handle }
        DropLease { lock, handle } = { lock, handle }
        Document(what) = { what }
    }
    OpenSession, Attach, Manage, EndSession, ChangeSetting
}
