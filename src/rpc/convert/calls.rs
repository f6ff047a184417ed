//! The calls of programs without a stream, as they come in and as they are sent.

use super::requests::{open_session, stream_acquire, stream_acquire_set, stream_alter, stream_close, stream_release};
use super::scalars::{lock_key, namespace, required};
use super::table::Wire;
use crate::limits;
use crate::model::{
    Access, Claim, Command, FencingToken, Handle, Invalid, LeaseRequestId, LogTime, Mode, OpenSession, Release,
    RenewalTarget, RequestId, SessionClose, SessionId, TakeLease,
};
use crate::rpc::pb;
use crate::service::{Call, ClaimRef, Proof, RenewalCall, ServiceError};

/// What an acquire asks for, whatever it is taken for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rpc) struct Asked {
    pub(in crate::rpc) call: Call,
    pub(in crate::rpc) claim: ClaimRef,
    /// Gives it up.
    pub(in crate::rpc) cancel: Call,
}

/// The session that a call acts for, and its proof.
fn proven(of: &str, session: Option<pb::SessionProof>) -> Result<(SessionId, Proof), Invalid> {
    let pb::SessionProof { id, handle } = required("session", session)?;
    let (handle, namespace) = (Handle::parse(&handle)?, namespace(of)?);
    Ok((SessionId::from_u64(id)?, Proof::Handle { handle, namespace }))
}

fn of_session(proof: Proof, command: Command) -> Call {
    Call { proof, ..Call::new(command) }
}

fn sessionless(age_ms: u64, since_ms: Option<u64>, command: Command) -> Call {
    Call { age_ms, since: since_ms.map(LogTime), ..Call::new(command) }
}

/// The number of a session's request.
fn number(request: &str) -> Result<u64, Invalid> {
    let below = limits::OWN_REQUESTS_MIN;
    let number = request.parse().ok().filter(|number| *number < below);
    number.ok_or_else(|| Invalid::new("request", format!("a number below {below}"), format!("{request:?}")))
}

/// The identity of a lease's request: a UUID, with or without its hyphens.
fn uuid(request: &str) -> Result<LeaseRequestId, Invalid> {
    let digits = request.replace('-', "");
    let whole = [32, 36].contains(&request.len()) && digits.len() == 32;
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| whole && !digits.starts_with('+'));
    number.map(LeaseRequestId).ok_or_else(|| Invalid::new("request", "a UUID", format!("{request:?}")))
}

/// The same, as it is written.
pub(in crate::rpc) fn uuid_text(LeaseRequestId(id): LeaseRequestId) -> String {
    let digits = format!("{id:032x}");
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

impl TryFrom<pb::AcquireRequest> for Asked {
    type Error = Invalid;
    fn try_from(mut asked: pb::AcquireRequest) -> Result<Self, Invalid> {
        use pb::acquire_request::Holder;
        match required("holder", asked.holder.take())? {
            Holder::Session(session) => acquire(session, asked),
            Holder::Lease(pb::LeaseProof { handle }) => take(&handle, asked),
        }
    }
}

impl TryFrom<pb::AcquireRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::AcquireRequest) -> Result<Self, Invalid> {
        Asked::try_from(asked).map(|asked| asked.call)
    }
}

fn acquire(session: pb::SessionProof, asked: pb::AcquireRequest) -> Result<Asked, Invalid> {
    let (session, proof) = proven(&asked.namespace, Some(session))?;
    let request = RequestId { session, number: number(&asked.request)? };
    let lock = lock_key(&asked.namespace, &asked.lock)?;
    let acquire = stream_acquire(session, stream_acquire_of(request.number, asked))?;
    Ok(Asked {
        call: of_session(proof.clone(), Command::Acquire(acquire)),
        claim: ClaimRef { lock, claim: Claim::Request(request) },
        cancel: of_session(proof, Command::Cancel { request }),
    })
}

fn take(handle: &str, asked: pb::AcquireRequest) -> Result<Asked, Invalid> {
    of_a_lease(&asked)?;
    let take = TakeLease {
        lock: lock_key(&asked.namespace, &asked.lock)?,
        take: uuid(&asked.request)?,
        handle: Handle::parse(handle)?,
        access: asked.mode.map_or(Ok(Mode::Exclusive.into()), |mode| Access::from_wire("mode", mode))?,
        lease_ms: asked.lease_ms.unwrap_or(limits::TTL_MS_DEFAULT_MIN),
        patience: Wire::from_wire("wait_ms", asked.wait_ms.or(Some(0)))?,
        metadata: Wire::from_wire("metadata", asked.metadata)?,
    };
    let cancel = Command::CancelTake { lock: take.lock.clone(), take: take.take, handle: take.handle.clone() };
    Ok(Asked {
        claim: ClaimRef { lock: take.lock.clone(), claim: Claim::Lease(take.take) },
        call: sessionless(asked.age_ms, asked.since_ms, Command::TakeLease(take)),
        cancel: sessionless(asked.age_ms, asked.since_ms, cancel),
    })
}

/// Refuses what only a session has.
fn of_a_lease(asked: &pb::AcquireRequest) -> Result<(), Invalid> {
    let chosen = [
        ("owner", asked.owner.is_some()),
        ("reentry", asked.reentry != 0),
        ("unfair", asked.unfair),
        ("delay_ms", asked.delay_ms != 0),
        ("value", asked.value.is_some()),
        ("parent", asked.parent.is_some()),
        ("wait_in_cycles", asked.wait_in_cycles),
        ("at_least_ms", asked.at_least_ms.is_some()),
        ("at_most_ms", asked.at_most_ms.is_some()),
        ("cached", asked.cached),
        ("answered_below", asked.answered_below != 0),
    ];
    let refused = chosen.iter().find(|(_, chosen)| *chosen);
    refused.map_or(Ok(()), |(field, _)| Err(Invalid::new(field, "left out for a lease", "set")))
}

/// The call has another command than the message is for.
fn not_for(message: &str) -> ServiceError {
    ServiceError::Internal(format!("not for {message}"))
}

/// A lease's request, as it is sent.
impl TryFrom<&Call> for pb::AcquireRequest {
    type Error = ServiceError;
    fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
        let Command::TakeLease(take) = command else { return Err(not_for("AcquireRequest")) };
        let TakeLease { lock, take, handle, access, lease_ms, patience, metadata } = take;
        Ok(Self {
            namespace: lock.namespace.to_wire(),
            lock: lock.name.to_wire(),
            holder: Some(pb::acquire_request::Holder::Lease(lease_proof(handle))),
            request: uuid_text(*take),
            mode: access.to_wire(),
            // No session ends its wait: it lasts as long as a wait may.
            wait_ms: Wire::<Option<u64>>::to_wire(patience).or(Some(limits::PATIENCE_MS_MAX)),
            metadata: metadata.to_wire(),
            lease_ms: Some(*lease_ms),
            age_ms: *age_ms,
            since_ms: since.to_wire(),
            ..Self::default()
        })
    }
}

fn lease_proof(handle: &Handle) -> pb::LeaseProof {
    pb::LeaseProof { handle: handle.reveal().to_owned() }
}

impl TryFrom<pb::ReleaseRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::ReleaseRequest) -> Result<Self, Invalid> {
        use pb::release_request::Holder;
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        match required("holder", asked.holder)? {
            Holder::Session(session) => {
                let (session, proof) = proven(&asked.namespace, Some(session))?;
                let request = RequestId { session, number: number(&asked.request)? };
                let token = FencingToken::from_u64(asked.token)?;
                let release = Release { request, answered_below: asked.answered_below, name: lock.name, token };
                Ok(of_session(proof, Command::Release(release)))
            }
            Holder::Lease(pb::LeaseProof { handle }) => {
                let command = Command::DropLease { lock, handle: Handle::parse(&handle)? };
                Ok(sessionless(asked.age_ms, asked.since_ms, command))
            }
        }
    }
}

/// A lease that is given back, as it is sent.
impl TryFrom<&Call> for pb::ReleaseRequest {
    type Error = ServiceError;
    fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
        let Command::DropLease { lock, handle } = command else { return Err(not_for("ReleaseRequest")) };
        Ok(Self {
            namespace: lock.namespace.to_wire(),
            lock: lock.name.to_wire(),
            holder: Some(pb::release_request::Holder::Lease(lease_proof(handle))),
            age_ms: *age_ms,
            since_ms: since.to_wire(),
            ..Self::default()
        })
    }
}

impl TryFrom<pb::WithdrawRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::WithdrawRequest) -> Result<Self, Invalid> {
        use pb::withdraw_request::Holder;
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        match required("holder", asked.holder)? {
            Holder::Session(session) => {
                let (session, proof) = proven(&asked.namespace, Some(session))?;
                let request = RequestId { session, number: number(&asked.request)? };
                Ok(of_session(proof, Command::Cancel { request }))
            }
            Holder::Lease(pb::LeaseProof { handle }) => {
                let (take, handle) = (uuid(&asked.request)?, Handle::parse(&handle)?);
                Ok(sessionless(asked.age_ms, asked.since_ms, Command::CancelTake { lock, take, handle }))
            }
        }
    }
}

/// A lease's request that is given up, as it is sent.
impl TryFrom<&Call> for pb::WithdrawRequest {
    type Error = ServiceError;
    fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
        let Command::CancelTake { lock, take, handle } = command else { return Err(not_for("WithdrawRequest")) };
        Ok(Self {
            namespace: lock.namespace.to_wire(),
            lock: lock.name.to_wire(),
            holder: Some(pb::withdraw_request::Holder::Lease(lease_proof(handle))),
            request: uuid_text(*take),
            age_ms: *age_ms,
            since_ms: since.to_wire(),
        })
    }
}

impl TryFrom<pb::OpenSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::OpenSessionRequest) -> Result<Self, Invalid> {
        let pb::OpenSessionRequest { namespace: of, handle, instance, ttl_ms, metadata, accepts_hand_over } = asked;
        let open = pb::StreamOpen { handle, instance, ttl_ms, metadata, accepts_hand_over, disconnect_grace_ms: None };
        let open: OpenSession = open_session(namespace(&of)?, open)?;
        Ok(Call::new(Command::OpenSession(open)))
    }
}

impl TryFrom<pb::CloseSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::CloseSessionRequest) -> Result<Self, Invalid> {
        let (session, proof) = proven(&asked.namespace, asked.session)?;
        let end = if asked.lost { SessionClose::Lost } else { SessionClose::Done };
        Ok(of_session(proof, Command::CloseSession { session, end }))
    }
}

impl TryFrom<pb::KeepAliveRequest> for RenewalCall {
    type Error = Invalid;
    fn try_from(asked: pb::KeepAliveRequest) -> Result<Self, Invalid> {
        let (session, proof) = proven(&asked.namespace, asked.session)?;
        Ok(Self { target: RenewalTarget::Session(session), proof, attempt: asked.attempt })
    }
}

impl TryFrom<pb::RefreshRequest> for RenewalCall {
    type Error = Invalid;
    fn try_from(asked: pb::RefreshRequest) -> Result<Self, Invalid> {
        use pb::refresh_request::Holder;
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        let lease_ms = if asked.lease_ms == 0 { limits::TTL_MS_DEFAULT_MIN } else { asked.lease_ms };
        let (target, proof) = match required("holder", asked.holder)? {
            Holder::Session(session) => {
                let (session, proof) = proven(&asked.namespace, Some(session))?;
                let token = FencingToken::from_u64(asked.token)?;
                (RenewalTarget::Hold { lock, session, token, lease_ms }, proof)
            }
            Holder::Lease(pb::LeaseProof { handle }) => {
                (RenewalTarget::Lease { lock, handle: Handle::parse(&handle)?, lease_ms }, Proof::Trusted)
            }
        };
        Ok(Self { target, proof, attempt: asked.attempt })
    }
}

impl TryFrom<pb::CommandRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::CommandRequest) -> Result<Self, Invalid> {
        use pb::command_request::Command as What;
        let (session, proof) = proven(&asked.namespace, asked.session)?;
        let command = match required("command", asked.command)? {
            What::Acquire(acquire) => Command::Acquire(stream_acquire(session, acquire)?),
            What::AcquireSet(set) => Command::Acquire(stream_acquire_set(session, set)?),
            What::Release(release) => Command::Release(stream_release(session, release)?),
            What::Cancel(pb::StreamCancel { request }) => {
                Command::Cancel { request: RequestId { session, number: request } }
            }
            What::Alter(alter) => Command::Alter(stream_alter(session, alter)?),
            What::Close(pb::StreamClose { end }) => stream_close(session, end)?,
        };
        Ok(of_session(proof, command))
    }
}

/// A call's acquire, as it would stand on a stream.
fn stream_acquire_of(request: u64, asked: pb::AcquireRequest) -> pb::StreamAcquire {
    let extras = pb::Extras {
        reentry: asked.reentry,
        unfair: asked.unfair,
        delay_ms: asked.delay_ms,
        value: asked.value,
        parent: asked.parent,
        wait_in_cycles: asked.wait_in_cycles,
        at_least_ms: asked.at_least_ms,
        at_most_ms: asked.at_most_ms,
        cached: asked.cached,
    };
    pb::StreamAcquire {
        request,
        answered_below: asked.answered_below,
        lock: asked.lock,
        mode: asked.mode.or_else(|| Wire::<Option<_>>::to_wire(&Mode::Exclusive)),
        owner: asked.owner,
        wait_ms: asked.wait_ms,
        metadata: asked.metadata,
        extras: Some(extras),
        lease_ms: asked.lease_ms,
    }
}
