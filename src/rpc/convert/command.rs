//! Commands and questions as they come in from callers, and as a caller sends them.

use bytes::Bytes;

use super::extras::extras;
use super::part::{
    bytes_of, known, lock_key, metadata, namespace, owner, patience, read_u128, required, rows, take_id, wait_ms,
};
use crate::limits;
use crate::model::{
    Access, Acquire, Command, FencingToken, Handle, Instance, Invalid, ListFilter, ListShow, LockKey, LockName,
    LogTime, Mode, Namespace, OpenSession, Query, Release, RequestId, SessionId, TakeLease,
};
use crate::rpc::pb;
use crate::service::{Call, ClaimRef, Proof, Scope, Subscription};

/// A command to open a session.
pub(in crate::rpc) fn open_session(namespace: Namespace, open: pb::StreamOpen) -> Result<OpenSession, Invalid> {
    Ok(OpenSession {
        namespace,
        handle: Handle::parse(&open.handle)?,
        instance: Instance(read_u128("instance", &open.instance)?),
        ttl_ms: open.ttl_ms,
        disconnect_grace_ms: open.disconnect_grace_ms,
        metadata: metadata(open.metadata)?,
        accepts_hand_over: open.accepts_hand_over,
    })
}

/// The same, as it is sent.
pub(in crate::rpc) fn stream_open(open: &OpenSession) -> pb::StreamOpen {
    pb::StreamOpen {
        handle: open.handle.reveal().to_owned(),
        instance: bytes_of(open.instance.0),
        ttl_ms: open.ttl_ms,
        disconnect_grace_ms: open.disconnect_grace_ms,
        metadata: Some((&open.metadata).into()),
        accepts_hand_over: open.accepts_hand_over,
    }
}

/// A session's acquire.
pub(in crate::rpc) fn stream_acquire(session: SessionId, acquire: pb::StreamAcquire) -> Result<Acquire, Invalid> {
    let (extras, lease_ms) = extras(acquire.extras)?;
    Ok(Acquire {
        request: RequestId { session, number: acquire.request },
        answered_below: acquire.answered_below,
        locks: (LockName::parse(&acquire.lock)?, required("mode", acquire.mode)?.try_into()?).into(),
        owner: owner(acquire.owner)?,
        patience: patience(acquire.wait_ms)?,
        metadata: metadata(acquire.metadata)?,
        lease_ms,
        extras,
    })
}

/// An acquire of one lock, as it is sent; `None` where it is one of a set.
pub(in crate::rpc) fn acquire_of_one(acquire: &Acquire) -> Option<pb::StreamAcquire> {
    let (name, access) = acquire.locks.only()?;
    Some(pb::StreamAcquire {
        request: acquire.request.number,
        answered_below: acquire.answered_below,
        lock: name.to_string(),
        mode: Some((*access).into()),
        owner: acquire.owner.as_ref().map(ToString::to_string),
        wait_ms: wait_ms(acquire.patience),
        metadata: Some((&acquire.metadata).into()),
        extras: pb::Extras::of(acquire),
    })
}

/// A session's release.
pub(in crate::rpc) fn stream_release(session: SessionId, release: pb::StreamRelease) -> Result<Release, Invalid> {
    Ok(Release {
        request: RequestId { session, number: release.request },
        answered_below: release.answered_below,
        name: LockName::parse(&release.lock)?,
        token: FencingToken::from_u64(release.token)?,
    })
}

impl From<&Release> for pb::StreamRelease {
    fn from(release: &Release) -> Self {
        Self {
            request: release.request.number,
            answered_below: release.answered_below,
            lock: release.name.to_string(),
            token: release.token.as_u64(),
        }
    }
}

/// The command that closes a session.
pub(in crate::rpc) fn stream_close(session: SessionId, end: i32) -> Result<Command, Invalid> {
    let end = known::<pb::SessionClose>("end", end)?.try_into()?;
    Ok(Command::CloseSession { session, end })
}

/// A session's command that brings its proof along.
pub(super) fn call(handle: &str, namespace_text: &str, command: Command) -> Result<Call, Invalid> {
    let proof = Proof::Handle { handle: Handle::parse(handle)?, namespace: namespace(namespace_text)? };
    Ok(Call { proof, ..Call::new(command) })
}

fn sessionless(age_ms: u64, since_ms: Option<u64>, command: Command) -> Call {
    Call { age_ms, since: since_ms.map(LogTime), ..Call::new(command) }
}

impl TryFrom<pb::AcquireRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::AcquireRequest) -> Result<Self, Invalid> {
        let take = TakeLease {
            lock: lock_key(&asked.namespace, &asked.lock)?,
            take: take_id(&asked.take)?,
            handle: Handle::parse(&asked.handle)?,
            access: asked.mode.map_or(Ok(Mode::Exclusive.into()), Access::try_from)?,
            lease_ms: asked.lease_ms,
            patience: patience(asked.wait_ms.or(Some(0)))?,
            metadata: metadata(asked.metadata)?,
        };
        Ok(sessionless(asked.age_ms, asked.since_ms, Command::TakeLease(take)))
    }
}

/// When a sessionless command was first sent: see [`Call`].
#[derive(Debug, Clone, Copy)]
pub(in crate::rpc) struct Sent {
    pub(in crate::rpc) age_ms: u64,
    pub(in crate::rpc) since: Option<LogTime>,
}

impl From<&Call> for Sent {
    fn from(call: &Call) -> Self {
        Self { age_ms: call.age_ms, since: call.since }
    }
}

/// A take, as it is sent.
impl From<(&TakeLease, Sent)> for pb::AcquireRequest {
    fn from((take, Sent { age_ms, since }): (&TakeLease, Sent)) -> Self {
        Self {
            namespace: take.lock.namespace.to_string(),
            lock: take.lock.name.to_string(),
            take: bytes_of(take.take.0),
            handle: take.handle.reveal().to_owned(),
            mode: Some(take.access.into()),
            lease_ms: take.lease_ms,
            // No session ends its wait: it lasts as long as a wait may.
            wait_ms: wait_ms(take.patience).or(Some(limits::PATIENCE_MS_MAX)),
            metadata: Some((&take.metadata).into()),
            age_ms,
            since_ms: since.map(|since| since.0),
        }
    }
}

impl TryFrom<pb::ReleaseRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::ReleaseRequest) -> Result<Self, Invalid> {
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        let handle = Handle::parse(&asked.handle)?;
        Ok(sessionless(asked.age_ms, asked.since_ms, Command::DropLease { lock, handle }))
    }
}

impl TryFrom<pb::WithdrawRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::WithdrawRequest) -> Result<Self, Invalid> {
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        let (take, handle) = (take_id(&asked.take)?, Handle::parse(&asked.handle)?);
        Ok(sessionless(asked.age_ms, asked.since_ms, Command::CancelTake { lock, take, handle }))
    }
}

impl TryFrom<pb::OpenSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::OpenSessionRequest) -> Result<Self, Invalid> {
        let open = open_session(namespace(&asked.namespace)?, required("open", asked.open)?)?;
        Ok(Call::new(Command::OpenSession(open)))
    }
}

impl TryFrom<pb::CloseSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::CloseSessionRequest) -> Result<Self, Invalid> {
        call(&asked.handle, &asked.namespace, stream_close(SessionId::from_u64(asked.session)?, asked.end)?)
    }
}

impl TryFrom<pb::SessionAcquireRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::SessionAcquireRequest) -> Result<Self, Invalid> {
        let session = SessionId::from_u64(asked.session)?;
        call(
            &asked.handle,
            &asked.namespace,
            Command::Acquire(stream_acquire(session, required("acquire", asked.acquire)?)?),
        )
    }
}

impl TryFrom<pb::SessionReleaseRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::SessionReleaseRequest) -> Result<Self, Invalid> {
        let session = SessionId::from_u64(asked.session)?;
        call(
            &asked.handle,
            &asked.namespace,
            Command::Release(stream_release(session, required("release", asked.release)?)?),
        )
    }
}

impl TryFrom<pb::SessionCancelRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::SessionCancelRequest) -> Result<Self, Invalid> {
        let request = RequestId { session: SessionId::from_u64(asked.session)?, number: asked.request };
        call(&asked.handle, &asked.namespace, Command::Cancel { request })
    }
}

impl TryFrom<pb::SettledRequest> for ClaimRef {
    type Error = Invalid;
    fn try_from(asked: pb::SettledRequest) -> Result<Self, Invalid> {
        let claim = required("claim", asked.claim)?.try_into()?;
        Ok(Self { lock: lock_key(&asked.namespace, &asked.lock)?, claim })
    }
}

impl From<&ClaimRef> for pb::SettledRequest {
    fn from(claim: &ClaimRef) -> Self {
        let LockKey { namespace, name } = &claim.lock;
        Self { namespace: namespace.to_string(), lock: name.to_string(), claim: Some(claim.claim.into()) }
    }
}

impl TryFrom<pb::CheckRequest> for Query {
    type Error = Invalid;
    fn try_from(asked: pb::CheckRequest) -> Result<Self, Invalid> {
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        Ok(Query::Check { lock, token: FencingToken::from_u64(asked.token)? })
    }
}

impl TryFrom<pb::ListRequest> for ListFilter {
    type Error = Invalid;
    fn try_from(asked: pb::ListRequest) -> Result<Self, Invalid> {
        let show = match known::<pb::ListShow>("show", asked.show)? {
            pb::ListShow::Unspecified | pb::ListShow::All => ListShow::All,
            pb::ListShow::Held => ListShow::Held,
            pb::ListShow::Waiting => ListShow::Waiting,
        };
        Ok(Self {
            namespace: namespace(&asked.namespace)?,
            prefix: prefix(asked.prefix)?,
            show,
            older_than_ms: asked.older_than_ms,
            after: asked.after.map(|name| LockName::parse(&name)).transpose()?,
            rows: rows(asked.rows)?,
        })
    }
}

impl From<&ListFilter> for pb::ListRequest {
    fn from(filter: &ListFilter) -> Self {
        let show = match filter.show {
            ListShow::All => pb::ListShow::All,
            ListShow::Held => pb::ListShow::Held,
            ListShow::Waiting => pb::ListShow::Waiting,
        };
        Self {
            namespace: filter.namespace.to_string(),
            prefix: filter.prefix.clone(),
            show: show.into(),
            older_than_ms: filter.older_than_ms,
            after: filter.after.as_ref().map(ToString::to_string),
            rows: filter.rows,
            freshness: pb::Freshness::Unspecified.into(),
        }
    }
}

impl TryFrom<pb::WatchRequest> for Subscription {
    type Error = Invalid;
    fn try_from(asked: pb::WatchRequest) -> Result<Self, Invalid> {
        let scope = match asked.session {
            Some(session) if asked.holds => Scope::Holds(SessionId::from_u64(session)?),
            Some(session) => Scope::Session(SessionId::from_u64(session)?),
            None if asked.holds => return Err(Invalid::new("session", "named where its holds are watched", "nothing")),
            None => Scope::Namespace { namespace: namespace(&asked.namespace)?, prefix: prefix(asked.prefix)? },
        };
        let cluster_id = &asked.cluster_id;
        let cluster_id = (!cluster_id.is_empty()).then(|| read_u128("cluster_id", cluster_id)).transpose()?;
        Ok(Self { scope, after: asked.after.map(Into::into), cluster_id })
    }
}

impl From<&Subscription> for pb::WatchRequest {
    fn from(subscription: &Subscription) -> Self {
        let after = subscription.after.map(Into::into);
        let asked = Self { cluster_id: subscription.cluster_id.map(bytes_of).unwrap_or_default(), ..Self::default() };
        match &subscription.scope {
            Scope::Namespace { namespace, prefix } => {
                Self { namespace: namespace.to_string(), prefix: prefix.clone(), after, ..asked }
            }
            // Over the wire it is the session's events; whoever wants its end alone skips the others.
            Scope::Session(session) | Scope::SessionEnd(session) => {
                Self { session: Some(session.as_u64()), after, ..asked }
            }
            Scope::Holds(session) => Self { session: Some(session.as_u64()), holds: true, ..asked },
        }
    }
}

fn prefix(text: String) -> Result<String, Invalid> {
    if text.len() > limits::LOCK_NAME_BYTES_MAX {
        let bound = format!("at most {} bytes", limits::LOCK_NAME_BYTES_MAX);
        return Err(Invalid::new("prefix", bound, format!("{} bytes", text.len())));
    }
    Ok(text)
}

/// The cluster that a client expects, if it says one.
impl pb::ClientHello {
    pub(in crate::rpc) fn expected_cluster(&self) -> Result<Option<u128>, Invalid> {
        let expected: &Bytes = &self.cluster_id;
        (!expected.is_empty()).then(|| read_u128("cluster_id", expected)).transpose()
    }
}
