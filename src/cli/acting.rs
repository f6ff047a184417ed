//! Acting on others' locks: `break ask handover semaphore`; and who leads: `leader`.

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::look::called;
use super::options::NameOptions;
use super::output::Output;
use super::parse::{lock_name, reason, session, token};
use super::shapes;
use super::{NO, YES};
use crate::client::Client;
use crate::model::{BreakReport, FencingToken, LockName, Namespace, Reason, SessionId};
use crate::service::LockService;

#[derive(Debug, Args)]
pub(super) struct BreakOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    name: LockName,
    /// The fencing token of the hold that is meant
    #[arg(value_parser = token)]
    token: FencingToken,
    /// Reason, shown to all who look
    #[arg(long, value_parser = reason, value_name = "TEXT")]
    why: Reason,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct AskOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    name: LockName,
    /// The fencing token of the hold that is meant
    #[arg(value_parser = token)]
    token: FencingToken,
    /// Reason, shown to the holder
    #[arg(value_parser = reason, value_name = "TEXT")]
    why: Reason,
}

#[derive(Debug, Args)]
pub(super) struct HandOverOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    name: LockName,
    /// The fencing token of the hold that is meant
    #[arg(value_parser = token)]
    token: FencingToken,
    /// Id of the session that is to hold it: one that waits for it, or that said that it accepts
    #[arg(long, value_parser = session, value_name = "SESSION")]
    to: SessionId,
}

#[derive(Debug, Args)]
pub(super) struct SemaphoreOptions {
    /// Which semaphore
    #[arg(value_parser = lock_name)]
    name: LockName,
    /// Number of permits there are, kept also while none is used [default: none, with --remove]
    #[arg(long, required_unless_present = "remove", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::limits::PERMITS_MAX)))]
    limit: Option<u32>,
    /// Forget the limit once no permit is used
    #[arg(long, conflicts_with = "limit")]
    remove: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    /// End a session: all its locks are broken, its waiters leave their queues, and its client learns why
    End(EndOptions),
}

#[derive(Debug, Args)]
pub(super) struct EndOptions {
    /// Public id of the session, as `sessions` shows it
    #[arg(value_parser = session, value_name = "ID")]
    id: SessionId,
    /// Reason, shown to the session's client and in the history of its locks
    #[arg(long, value_parser = reason, value_name = "TEXT")]
    why: Reason,
}

/// Acts on a session of another client.
pub(super) async fn on_session<S: LockService>(
    client: &Client<S>,
    command: SessionCommand,
    output: &Output,
) -> Result<u8, Failure> {
    let SessionCommand::End(EndOptions { id, why }) = command;
    client.end_session(id, why.as_str()).await?;
    if output.json {
        output.object(&shapes::EndedSession { session: id.to_string(), ended: true })?;
    }
    output.remark(&format!("session {id} has ended"));
    Ok(YES)
}

/// Ends a hold against its holder's will, or says what that would do.
pub(super) async fn break_hold<S: LockService>(
    client: &Client<S>,
    options: BreakOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let BreakOptions { name, token, why, dry_run } = options;
    // Before, so that whatever fails after the break is not taken for the break. Ages are counted from here.
    let now = client.inspect(name.as_str()).await?.now;
    let breach = if dry_run {
        client.would_break(name.as_str(), token).await?
    } else {
        client.break_hold(name.as_str(), token, why.as_str()).await?
    };
    if output.json {
        output.object(&shapes::Broken::new(&name, &breach, now))?;
    } else {
        output.line(told(&name, &breach, now))?;
    }
    Ok(YES)
}

fn told(name: &LockName, breach: &BreakReport, now: crate::model::LogTime) -> String {
    let (did, next) = if breach.done { ("broken", "next is") } else { ("would be broken", "next would be") };
    let holder = &breach.holder;
    let seen = breach.last_seen.map_or(String::new(), |seen| {
        let ago = super::look::ago(now, seen);
        format!(", last seen {ago} ago")
    });
    let next = breach.next.as_ref().map_or("nobody waits".to_owned(), |waiter| {
        let session = waiter.session.map_or(String::new(), |session| format!(", session {session}"));
        format!("{next} {}{session}", called(&waiter.metadata))
    });
    format!("{name}: the hold of {} (token {}{seen}) {did}; {next}", called(&holder.metadata), holder.token)
}

/// Asks a holder to give up its hold.
pub(super) async fn ask<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: AskOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let AskOptions { name, token, why } = options;
    // The cluster names only principals. The holder sees who asks, unless the text leaves no space for that.
    let named = format!("{}: {}", called(&super::who::metadata("ask")?), why.as_str());
    let why = Reason::parse(&named).unwrap_or(why);
    client.ask(name.as_str(), token, why.as_str()).await?;
    if output.json {
        let (namespace, lock, token) = (namespace.to_string(), name.to_string(), token.to_string());
        output.object(&shapes::Asked { namespace, lock, token, asked: true })?;
    }
    Ok(YES)
}

/// Makes another session the holder, and prints the new token.
pub(super) async fn hand_over<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: HandOverOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let HandOverOptions { name, token, to } = options;
    let token = client.hand_over(name.as_str(), token, to).await?;
    let (namespace, lock, session) = (namespace.to_string(), name.to_string(), to.to_string());
    let answer = shapes::HandedOver { namespace, lock, token: token.to_string(), session };
    output.answer(&answer, || token.to_string())?;
    Ok(YES)
}

/// Keeps a semaphore's limit, changes it or forgets it. Without JSON there is nothing to say.
pub(super) async fn semaphore<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: SemaphoreOptions,
    output: &Output,
) -> Result<u8, Failure> {
    match options.limit {
        Some(limit) => client.set_semaphore(options.name.as_str(), limit).await?,
        None => client.remove_semaphore(options.name.as_str()).await?,
    }
    if output.json {
        let (namespace, lock) = (namespace.to_string(), options.name.to_string());
        output.object(&shapes::Semaphore { namespace, lock, limit: options.limit })?;
    }
    Ok(YES)
}

/// Who leads, by what it proclaims. That nobody does is an answer, too: exit code 1.
pub(super) async fn leader<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: NameOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let leader = client.election(options.name.as_str()).leader().await?;
    if output.json {
        output.object(&shapes::Leader::new(namespace, &options.name, leader.as_ref()))?;
    } else if let Some(leader) = &leader {
        output.line(leader.value.as_ref().map_or_else(|| called(&leader.metadata), ToString::to_string))?;
    } else {
        output.line(format!("no session leads {}", options.name))?;
    }
    Ok(if leader.is_some() { YES } else { NO })
}
