//! `session end`: ends a session of another client.

use clap::Subcommand;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES, not_open};
use crate::cli::output::Output;
use crate::model::{Reason, SessionId};
use crate::shapes::EndedSession;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SessionCommand {
    /// End a session: all its locks are broken, its waiters leave their queues, and its client gets the reason
    End {
        /// Public id of the session, as `sessions` shows it
        #[arg(value_name = "ID")]
        id: SessionId,
        /// Reason, shown to the session's client and in the history of its locks
        #[arg(long, value_parser = Reason::parse, value_name = "TEXT")]
        why: Reason,
    },
}

/// Ends a session of another client.
pub(in crate::cli) async fn run(client: &Client, command: SessionCommand, output: &Output) -> Result<u8, Failure> {
    let SessionCommand::End { id, why } = command;
    client.end_session(id, why.as_str()).await.map_err(not_open)?;
    output.object_only(&EndedSession { session: id.to_string(), ended: true })?;
    output.remark(&format!("session {id} has ended"));
    Ok(YES)
}
