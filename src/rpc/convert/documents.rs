//! Locks as documents: changes as they come in and are sent.

use super::scalars::{namespace, required};
use super::table::Wire;
use crate::model::{Command, DocumentCommand, Grab, Invalid, LockKey, LogTime};
use crate::rpc::pb;
use crate::service::{Call, ServiceError};

wire_messages! {
    Grab = Grab { lock, ts, metadata, term, prepare, seen }
}

wire_oneof! {
    DocumentCommand = document_request::What {
        Grab(grab),
        Unlock = Unlock { ts; lock: name + namespace },
        UnlockAll = UnlockAll { process, term + namespace },
        Ping { process + namespace },
        StopPing { process + namespace },
        RemoveExpired = RemoveExpired { lock, token; deadline_ms: deadline },
        SwapValue = SwapValue { lock, handle, seen, value },
        Confirm = Confirm { lock, ts },
    }
}

/// The namespace of a change, which its message names once: by reference as the command is.
macro_rules! named_in {
    ($command:expr) => {{
        let (DocumentCommand::Grab(Grab { lock: LockKey { namespace, .. }, .. })
        | DocumentCommand::Unlock { namespace, .. }
        | DocumentCommand::UnlockAll { namespace, .. }
        | DocumentCommand::Ping { namespace, .. }
        | DocumentCommand::StopPing { namespace, .. }
        | DocumentCommand::RemoveExpired { lock: LockKey { namespace, .. }, .. }
        | DocumentCommand::SwapValue { lock: LockKey { namespace, .. }, .. }
        | DocumentCommand::Confirm { lock: LockKey { namespace, .. }, .. }) = $command;
        namespace
    }};
}

impl TryFrom<pb::DocumentRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::DocumentRequest) -> Result<Self, Invalid> {
        let pb::DocumentRequest { namespace: of, age_ms, since_ms, what } = asked;
        let mut command = DocumentCommand::from_wire("what", required("what", what)?)?;
        *named_in!(&mut command) = namespace(&of)?;
        Ok(Call { age_ms, since: since_ms.map(LogTime), ..Call::new(Command::Document(command)) })
    }
}

impl TryFrom<&Call> for pb::DocumentRequest {
    type Error = ServiceError;
    fn try_from(Call { age_ms, since, command, .. }: &Call) -> Result<Self, ServiceError> {
        let Command::Document(command) = command else {
            return Err(ServiceError::Internal("not a change of documents".to_owned()));
        };
        let namespace = named_in!(command).to_wire();
        Ok(Self { namespace, age_ms: *age_ms, since_ms: since.to_wire(), what: command.to_wire() })
    }
}
