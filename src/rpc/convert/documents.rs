//! Locks as documents: changes as they come in and are sent.

use super::scalars::{lock_key, namespace, required};
use super::table::{Wire, must_be_set, wire_messages, wire_whole};
use crate::model::{Command, DocumentCommand, Grab, Invalid, LockKey, LogTime, Namespace};
use crate::rpc::pb;
use crate::rpc::pb::document_request::What;
use crate::service::{Call, ServiceError};

wire_messages! {
    Grab = Grab { lock, ts, metadata, term, prepare } + seen
}

impl TryFrom<pb::DocumentRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::DocumentRequest) -> Result<Self, Invalid> {
        let pb::DocumentRequest { namespace: of, age_ms, since_ms, what } = asked;
        let command = read_change(&of, namespace(&of)?, required("what", what)?)?;
        Ok(Call { age_ms, since: since_ms.map(LogTime), ..Call::new(Command::Document(command)) })
    }
}

fn read_change(of: &str, namespace: Namespace, what: What) -> Result<DocumentCommand, Invalid> {
    let in_namespace = |mut grab: Grab| {
        grab.lock.namespace.clone_from(&namespace);
        DocumentCommand::Grab(grab)
    };
    Ok(match what {
        What::Grab(grab) => in_namespace(Wire::from_wire("grab", grab)?),
        What::Overtake(pb::Overtake { grab, seen }) => {
            in_namespace(Grab { seen: Some(Wire::from_wire("seen", seen)?), ..Wire::from_wire("grab", grab)? })
        }
        What::Unlock(pb::Unlock { ts, lock }) => {
            let (ts, name) = (Wire::from_wire("ts", ts)?, Wire::from_wire("lock", lock)?);
            DocumentCommand::Unlock { namespace, ts, name }
        }
        What::UnlockAll(pb::UnlockAll { process, term }) => {
            DocumentCommand::UnlockAll { namespace, process: Wire::from_wire("process", process)?, term }
        }
        What::Ping(process) => DocumentCommand::Ping { namespace, process: Wire::from_wire("process", process)? },
        What::StopPing(process) => {
            DocumentCommand::StopPing { namespace, process: Wire::from_wire("process", process)? }
        }
        What::RemoveExpired(pb::RemoveExpired { lock, token, deadline_ms }) => DocumentCommand::RemoveExpired {
            lock: lock_key(of, &lock)?,
            token: Wire::from_wire("token", token)?,
            deadline: LogTime(deadline_ms),
        },
        What::SwapValue(pb::SwapValue { lock, handle, seen, value }) => DocumentCommand::SwapValue {
            lock: lock_key(of, &lock)?,
            handle: Wire::from_wire("handle", handle)?,
            seen: Wire::from_wire("seen", seen)?,
            value: Wire::from_wire("value", value)?,
        },
        What::Confirm(pb::Confirm { lock, ts }) => {
            DocumentCommand::Confirm { lock: lock_key(of, &lock)?, ts: Wire::from_wire("ts", ts)? }
        }
    })
}

impl TryFrom<&Call> for pb::DocumentRequest {
    type Error = ServiceError;
    fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
        let Command::Document(command) = command else {
            return Err(ServiceError::Internal("not a change of documents".to_owned()));
        };
        let (namespace, what) = written_change(command);
        Ok(Self { namespace: namespace.to_wire(), age_ms: *age_ms, since_ms: since.to_wire(), what: Some(what) })
    }
}

fn written_change(command: &DocumentCommand) -> (&Namespace, What) {
    match command {
        DocumentCommand::Grab(grab) => {
            let what = match &grab.seen {
                None => What::Grab(grab.to_wire()),
                Some(seen) => What::Overtake(pb::Overtake { grab: grab.to_wire(), seen: seen.to_wire() }),
            };
            (&grab.lock.namespace, what)
        }
        DocumentCommand::Unlock { namespace, ts, name } => {
            (namespace, What::Unlock(pb::Unlock { ts: ts.to_wire(), lock: name.to_wire() }))
        }
        DocumentCommand::UnlockAll { namespace, process, term } => {
            (namespace, What::UnlockAll(pb::UnlockAll { process: process.to_wire(), term: *term }))
        }
        DocumentCommand::Ping { namespace, process } => (namespace, What::Ping(process.to_wire())),
        DocumentCommand::StopPing { namespace, process } => (namespace, What::StopPing(process.to_wire())),
        DocumentCommand::RemoveExpired { lock: LockKey { namespace, name }, token, deadline } => {
            let (lock, token, deadline_ms) = (name.to_wire(), token.to_wire(), deadline.to_wire());
            (namespace, What::RemoveExpired(pb::RemoveExpired { lock, token, deadline_ms }))
        }
        DocumentCommand::SwapValue { lock: LockKey { namespace, name }, handle, seen, value } => {
            let (lock, handle, seen, value) = (name.to_wire(), handle.to_wire(), seen.to_wire(), value.to_wire());
            (namespace, What::SwapValue(pb::SwapValue { lock, handle, seen, value }))
        }
        DocumentCommand::Confirm { lock: LockKey { namespace, name }, ts } => {
            (namespace, What::Confirm(pb::Confirm { lock: name.to_wire(), ts: ts.to_wire() }))
        }
    }
}
