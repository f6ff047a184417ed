//! `sessions` lists the sessions of a namespace; `session end` ends one of another client.

use clap::{Args, Subcommand};

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{ago, called, short};
use crate::client::{ClientError, ReadAt};
use crate::model::{EndReason, Reason, SessionId, SessionView};
use crate::shapes::{EndedSession, Session};

/// Lists the sessions of the namespace.
pub(in crate::cli) async fn list(client: &Client, output: &Output) -> Result<u8, Failure> {
    let ReadAt { now, value: sessions, .. } = client.all_sessions().await?;
    let row = |session: &SessionView| {
        vec![
            session.session.to_string(),
            called(&session.metadata),
            session.holds.to_string(),
            session.waits.to_string(),
            short(session.ttl_ms),
            short(session.deadline.ms_since(now)),
            ago(now, session.opened),
            remarks(session),
        ]
    };
    let objects = sessions.iter().map(|session| Session::new(session, now));
    let heading = ["SESSION", "WHO", "HOLDS", "WAITS", "TTL", "LEFT", "AGE", ""];
    output.list(objects, &heading, sessions.iter().map(row))
}

/// Returns notes on a session: it lost its stream, or its life was extended while there was no leader.
fn remarks(session: &SessionView) -> String {
    let gone = session.disconnected.then(|| "disconnected".to_owned());
    let longer = (session.leaderless_ms != 0).then(|| format!("no leader for {}", short(session.leaderless_ms)));
    gone.into_iter().chain(longer).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SessionCommand {
    /// End a session: all its locks are broken, its waiters leave their queues, and its client gets the reason
    End(EndOptions),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct EndOptions {
    /// Public id of the session, as `sessions` shows it
    #[arg(value_name = "ID")]
    id: SessionId,
    /// Reason, shown to the session's client and in the history of its locks
    #[arg(long, value_parser = Reason::parse, value_name = "TEXT")]
    why: Reason,
}

/// Ends a session of another client.
pub(in crate::cli) async fn end(client: &Client, command: SessionCommand, output: &Output) -> Result<u8, Failure> {
    let SessionCommand::End(EndOptions { id, why }) = command;
    client.end_session(id, why.as_str()).await.map_err(not_open)?;
    output.object_only(&EndedSession { session: id.to_string(), ended: true })?;
    output.remark(&format!("session {id} has ended"));
    Ok(YES)
}

/// The failure of a command that names a session which is not open. Of a session that never existed, the cluster says
/// that it expired.
pub(super) fn not_open(error: ClientError) -> Failure {
    let ClientError::SessionLost { session, reason, .. } = &error else { return error.into() };
    let how = match reason {
        Some(EndReason::Expired) | None => "it has expired, or never existed".to_owned(),
        Some(reason) => format!("it has ended: {reason}"),
    };
    let detail = format!("session {session} is not open ({how}); `lockkeeper sessions` lists those that are");
    Failure { names_next_step: true, ..Failure::new(error.code(), detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that is not open may never have existed. The next step is the list of sessions.
    #[test]
    fn a_session_that_is_not_open_may_never_have_existed() {
        let detail = |reason| {
            let session = SessionId::from_u64(99).expect("an id");
            let failure = not_open(ClientError::SessionLost { session, reason: Some(reason), why: None });
            assert!(failure.names_next_step);
            failure.detail
        };
        let list = "`lockkeeper sessions` lists those that are";
        let expired = format!("session 99 is not open (it has expired, or never existed); {list}");
        assert_eq!(detail(EndReason::Expired), expired);
        assert!(detail(EndReason::Broken).contains("(it has ended: "), "{}", detail(EndReason::Broken));
    }
}
