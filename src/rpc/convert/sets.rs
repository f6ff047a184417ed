//! Lock sets: as they come in, and as they are sent.

use super::command::call;
use super::extras::extras;
use super::part::{metadata, owner, patience, required, wait_ms};
use crate::model::{Acquire, Command, Invalid, LockName, RequestId, SessionId, SmallMap};
use crate::rpc::pb;
use crate::service::Call;

/// A session's acquire of several locks. How many there may be is the node's to check, for callers of every kind.
pub(in crate::rpc) fn stream_acquire_set(session: SessionId, set: pb::StreamAcquireSet) -> Result<Acquire, Invalid> {
    let mut locks = SmallMap::new();
    for pb::SetMember { lock, mode } in set.members {
        let name = LockName::parse(&lock)?;
        if locks.insert(name, required("mode", mode)?.try_into()?).is_some() {
            return Err(Invalid::new("locks", "each name once in a set", format!("{lock:?} twice")));
        }
    }
    let (extras, lease_ms) = extras(set.extras)?;
    Ok(Acquire {
        request: RequestId { session, number: set.request },
        answered_below: set.answered_below,
        locks,
        owner: owner(set.owner)?,
        patience: patience(set.wait_ms)?,
        metadata: metadata(set.metadata)?,
        lease_ms,
        extras,
    })
}

impl From<&Acquire> for pb::StreamAcquireSet {
    fn from(set: &Acquire) -> Self {
        let members = set.locks.iter();
        Self {
            request: set.request.number,
            answered_below: set.answered_below,
            members: members
                .map(|(name, access)| pb::SetMember { lock: name.to_string(), mode: Some((*access).into()) })
                .collect(),
            owner: set.owner.as_ref().map(ToString::to_string),
            wait_ms: wait_ms(set.patience),
            metadata: Some((&set.metadata).into()),
            extras: pb::Extras::of(set),
        }
    }
}

impl TryFrom<pb::SessionAcquireSetRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::SessionAcquireSetRequest) -> Result<Self, Invalid> {
        let set = stream_acquire_set(SessionId::from_u64(asked.session)?, required("acquire", asked.acquire)?)?;
        call(&asked.handle, &asked.namespace, Command::Acquire(set))
    }
}
