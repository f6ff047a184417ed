//! Changes of holds, and what is done to a lock from outside: as they come in, and as they are sent.

use super::command::call;
use super::part::{lock_key, namespace, patience, required, wait_ms};
use crate::model::{
    Alter, Alteration, Command, EndSession, FencingToken, Handle, Invalid, LockKey, LockName, LockValue, Manage,
    Managing, Query, Reason, RequestId, SessionId, Setting,
};
use crate::rpc::pb;
use crate::rpc::pb::manage_request::What as Act;
use crate::rpc::pb::stream_alter::What;
use crate::service::Call;

/// A session's change of a hold.
pub(in crate::rpc) fn stream_alter(session: SessionId, alter: pb::StreamAlter) -> Result<Alter, Invalid> {
    let what = match required("what", alter.what)? {
        What::Downgrade(pb::Downgrade { token }) => Alteration::Downgrade { token: FencingToken::from_u64(token)? },
        What::Upgrade(pb::Upgrade { token, wait_ms }) => {
            Alteration::Upgrade { token: FencingToken::from_u64(token)?, patience: patience(wait_ms)? }
        }
        What::Resume(pb::Resume { token, handle, lease_ms }) => {
            Alteration::Resume { token: FencingToken::from_u64(token)?, handle: Handle::parse(&handle)?, lease_ms }
        }
        What::SetValue(pb::SetValue { token, value }) => Alteration::SetValue {
            token: FencingToken::from_u64(token)?,
            value: value.map(|value| LockValue::parse(&value)).transpose()?,
        },
        What::ReturnPermits(pb::ReturnPermits { token, count }) => {
            Alteration::ReturnPermits { token: FencingToken::from_u64(token)?, count }
        }
    };
    let request = RequestId { session, number: alter.request };
    Ok(Alter { request, answered_below: alter.answered_below, name: LockName::parse(&alter.lock)?, what })
}

impl From<&Alter> for pb::StreamAlter {
    fn from(alter: &Alter) -> Self {
        let what = match &alter.what {
            Alteration::Downgrade { token } => What::Downgrade(pb::Downgrade { token: token.as_u64() }),
            Alteration::Upgrade { token, patience } => {
                What::Upgrade(pb::Upgrade { token: token.as_u64(), wait_ms: wait_ms(*patience) })
            }
            Alteration::Resume { token, handle, lease_ms } => What::Resume(pb::Resume {
                token: token.as_u64(),
                handle: handle.reveal().to_owned(),
                lease_ms: *lease_ms,
            }),
            Alteration::SetValue { token, value } => {
                What::SetValue(pb::SetValue { token: token.as_u64(), value: value.as_ref().map(ToString::to_string) })
            }
            Alteration::ReturnPermits { token, count } => {
                What::ReturnPermits(pb::ReturnPermits { token: token.as_u64(), count: *count })
            }
        };
        Self {
            request: alter.request.number,
            answered_below: alter.answered_below,
            lock: alter.name.to_string(),
            what: Some(what),
        }
    }
}

impl TryFrom<pb::SessionAlterRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::SessionAlterRequest) -> Result<Self, Invalid> {
        let alter = stream_alter(SessionId::from_u64(asked.session)?, required("alter", asked.alter)?)?;
        call(&asked.handle, &asked.namespace, Command::Alter(alter))
    }
}

impl TryFrom<pb::ChangeSettingRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::ChangeSettingRequest) -> Result<Self, Invalid> {
        let pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms) = required("setting", asked.setting)?;
        Ok(Call::new(Command::ChangeSetting(Setting::TtlMax(ttl_max_ms))))
    }
}

impl From<Setting> for pb::ChangeSettingRequest {
    fn from(setting: Setting) -> Self {
        let Setting::TtlMax(ttl_max_ms) = setting;
        Self { setting: Some(pb::change_setting_request::Setting::TtlMaxMs(ttl_max_ms)) }
    }
}

impl TryFrom<pb::EndSessionRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::EndSessionRequest) -> Result<Self, Invalid> {
        let (namespace, session) = (namespace(&asked.namespace)?, SessionId::from_u64(asked.session)?);
        Ok(Call::new(Command::EndSession(EndSession { namespace, session, why: Reason::parse(&asked.why)? })))
    }
}

impl From<&EndSession> for pb::EndSessionRequest {
    fn from(end: &EndSession) -> Self {
        let EndSession { namespace, session, why } = end;
        Self { namespace: namespace.to_string(), session: session.as_u64(), why: why.as_str().to_owned() }
    }
}

impl TryFrom<pb::ManageRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::ManageRequest) -> Result<Self, Invalid> {
        let lock = lock_key(&asked.namespace, &asked.lock)?;
        // The limit's own bounds are the node's to check, for callers of every kind.
        let what = match required("what", asked.what)? {
            Act::SetLimit(limit) => Managing::SetLimit { limit },
            Act::RemoveLimit(_) => Managing::RemoveLimit,
            // It would be done: a dry run is a question.
            Act::BreakHold(pb::Break { dry_run: true, .. }) => {
                return Err(Invalid::new("dry_run", "false in what is to be done", true));
            }
            Act::BreakHold(pb::Break { token, why, dry_run: false }) => {
                Managing::Break { token: FencingToken::from_u64(token)?, why: Reason::parse(&why)? }
            }
            Act::Ask(pb::Ask { token, why }) => {
                Managing::Ask { token: FencingToken::from_u64(token)?, why: Reason::parse(&why)? }
            }
            Act::HandOver(pb::HandOver { token, to }) => {
                Managing::HandOver { token: FencingToken::from_u64(token)?, to: SessionId::from_u64(to)? }
            }
        };
        Ok(Call::new(Command::Manage(Manage { lock, what })))
    }
}

impl From<&Manage> for pb::ManageRequest {
    fn from(manage: &Manage) -> Self {
        let what = match &manage.what {
            Managing::SetLimit { limit } => Act::SetLimit(*limit),
            Managing::RemoveLimit => Act::RemoveLimit(pb::Empty {}),
            Managing::Break { token, why } => {
                Act::BreakHold(pb::Break { token: token.as_u64(), why: why.as_str().to_owned(), dry_run: false })
            }
            Managing::Ask { token, why } => Act::Ask(pb::Ask { token: token.as_u64(), why: why.as_str().to_owned() }),
            Managing::HandOver { token, to } => Act::HandOver(pb::HandOver { token: token.as_u64(), to: to.as_u64() }),
        };
        Self { namespace: manage.lock.namespace.to_string(), lock: manage.lock.name.to_string(), what: Some(what) }
    }
}

/// The question that a dry run asks; `None` for what is to be done.
pub(in crate::rpc) fn read_dry_run(asked: &pb::ManageRequest) -> Result<Option<Query>, Invalid> {
    let Some(Act::BreakHold(pb::Break { token, why: _, dry_run: true })) = &asked.what else { return Ok(None) };
    let lock = lock_key(&asked.namespace, &asked.lock)?;
    Ok(Some(Query::WouldBreak { lock, token: FencingToken::from_u64(*token)? }))
}

/// A break of this hold as a dry run.
pub(in crate::rpc) fn dry_run(lock: &LockKey, token: FencingToken) -> pb::ManageRequest {
    let what = Some(Act::BreakHold(pb::Break { token: token.as_u64(), why: String::new(), dry_run: true }));
    pb::ManageRequest { namespace: lock.namespace.to_string(), lock: lock.name.to_string(), what }
}
