//! What is refused before it reaches the log: values that no machine would take, and commands that only nodes make.

use crate::limits;
use crate::model::{
    Alter, Alteration, Command, DocumentCommand, Invalid, Manage, Managing, Metadata, Mode, Patience, TakeLease,
};
use crate::service::{Call, ServiceError};

/// Refuses a call whose values are out of bounds, with the field, the bound and the value.
pub(super) fn check(call: &Call) -> Result<(), ServiceError> {
    match &call.command {
        Command::OpenSession(open) => metadata(&open.metadata)?,
        Command::Acquire(acquire) => {
            acquire.checked()?;
            metadata(&acquire.metadata)?;
            acquire.locks.values().try_for_each(|mode| permits(*mode))?;
            wait(acquire.patience)?;
        }
        Command::TakeLease(TakeLease { mode, patience, metadata: texts, .. }) => {
            metadata(texts)?;
            permits(*mode)?;
            wait(*patience)?;
            if *patience == Patience::Session {
                return Err(Invalid::new("wait", "a duration: no session bounds this wait", "for ever").into());
            }
        }
        Command::CancelTake { .. }
        | Command::DropLease { .. }
        | Command::Attach(_)
        | Command::Disconnected { .. }
        | Command::CloseSession { .. }
        | Command::EndSession(_)
        | Command::ChangeSetting(_)
        | Command::Cancel { .. }
        | Command::Release(_)
        | Command::Alter(Alter {
            what: Alteration::Downgrade { .. } | Alteration::Resume { .. } | Alteration::SetValue { .. },
            ..
        }) => {}
        Command::Alter(Alter { what: Alteration::Upgrade { patience, .. }, .. }) => wait(*patience)?,
        Command::Alter(Alter { what: Alteration::ReturnPermits { count, .. }, .. }) => {
            permits(Mode::Permits { count: *count, limit: None })?;
        }
        Command::Manage(Manage { what: Managing::SetLimit { limit }, .. }) => {
            permits(Mode::Permits { count: 1, limit: Some(*limit) })?;
        }
        Command::Manage(_) => {}
        Command::Document(DocumentCommand::Grab(grab) | DocumentCommand::Overtake { grab, .. }) => {
            metadata(&grab.metadata)?;
            grab.checked()?;
        }
        Command::Document(_) => {}
        Command::Tick
        | Command::LeaderlessGap { .. }
        | Command::Configure(_)
        | Command::Announce(_)
        | Command::RaiseFeatures(_) => {
            return Err(Invalid::new("command", "one that callers may submit", "one that only nodes make").into());
        }
    }
    Ok(())
}

/// Whether it is one that a node makes for itself, and nobody may pass on.
pub(super) fn only_nodes_make(command: &Command) -> bool {
    matches!(
        command,
        Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure(_)
            | Command::Announce(_)
            | Command::RaiseFeatures(_)
    )
}

fn metadata(metadata: &Metadata) -> Result<(), ServiceError> {
    Ok(metadata.clone().checked().map(|_| ())?)
}

fn permits(mode: Mode) -> Result<(), ServiceError> {
    let Mode::Permits { count, limit } = mode else { return Ok(()) };
    for (field, value) in [("permits", Some(count)), ("limit", limit)] {
        if value.is_some_and(|value| value == 0 || limits::PERMITS_MAX < value) {
            let bound = format!("1 to {}", limits::PERMITS_MAX);
            return Err(Invalid::new(field, bound, value.unwrap_or_default()).into());
        }
    }
    Ok(())
}

fn wait(patience: Patience) -> Result<(), ServiceError> {
    match patience {
        Patience::For { ms } if limits::PATIENCE_MS_MAX < ms => {
            let bound =
                format!("at most {} ms; leave it out to wait as long as the session lives", limits::PATIENCE_MS_MAX);
            Err(Invalid::new("wait", bound, ms).into())
        }
        Patience::For { .. } | Patience::Try | Patience::Session => Ok(()),
    }
}
