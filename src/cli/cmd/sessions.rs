//! `sessions` lists the sessions of a namespace; `session end` ends one of another client.

use clap::{Args, Subcommand};

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES, not_open};
use crate::cli::output::Output;
use crate::cli::text::{ago, called, short};
use crate::client::ReadAt;
use crate::model::{Reason, SessionId, SessionView};
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
