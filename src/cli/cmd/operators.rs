//! `ask`, `break`, `handover` and `semaphore`: acts of an operator on locks that other clients hold.

use clap::Args;

use super::sessions::not_open;
use crate::cli::args::HoldArgs;
use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::{ago, called};
use crate::cli::who::metadata;
use crate::client::ClientError;
use crate::limits::PERMITS_MAX;
use crate::model::{BreakReport, FencingToken, LockName, LockView, LogTime, Reason, Refusal, SessionId};
use crate::shapes::{Asked, Broken, HandedOver, Semaphore};

#[derive(Debug, Args)]
pub(in crate::cli) struct AskOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Reason, shown to the holder
    #[arg(value_parser = Reason::parse, value_name = "TEXT", required_unless_present = "why")]
    text: Option<Reason>,
    /// Reason, as `break` takes it [default: TEXT]
    #[arg(long, value_parser = Reason::parse, value_name = "TEXT", conflicts_with = "text")]
    why: Option<Reason>,
}

/// Asks a holder to give up its hold.
pub(in crate::cli) async fn ask(client: &Client, options: AskOptions, output: &Output) -> Result<u8, Failure> {
    let AskOptions { hold: HoldArgs { name, token }, text, why } = options;
    let why = text.or(why).ok_or_else(|| Failure::usage("<TEXT>", "an ask needs a reason"))?;
    // The cluster adds only the principal. This adds the name of the asking client, unless the text would be too long.
    let named = format!("{}: {}", called(&metadata("ask")?), why.as_str());
    let why = Reason::parse(&named).unwrap_or(why);
    client.ask(name.as_str(), token, why.as_str()).await.map_err(|error| no_hold(error, token))?;
    let (namespace, lock, token) = (client.settings.namespace.to_string(), name.to_string(), token.to_string());
    output.object_only(&Asked { namespace, lock, token, asked: true })
}

/// The failure of a command that names a hold by its token, and perhaps a session.
fn no_hold(error: ClientError, token: FencingToken) -> Failure {
    let ClientError::Refused(Refusal::NotHeld { lock }) = &error else { return not_open(error) };
    let detail = format!("no hold of {} has the token {token}", lock.name);
    Failure { detail, ..error.into() }
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BreakOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Reason, kept in the history of the lock; for a hold that has ended and only keeps the lock closed, kept in the
    /// audit log alone
    #[arg(long, value_parser = Reason::parse, value_name = "TEXT")]
    why: Reason,
    /// Only print what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Ends a hold, or prints what that would do.
pub(in crate::cli) async fn break_hold(client: &Client, options: BreakOptions, output: &Output) -> Result<u8, Failure> {
    let BreakOptions { hold: HoldArgs { name, token }, why, dry_run } = options;
    // Read before the break, so that an error here is not mistaken for an error of the break. Ages count from this
    // time.
    let (view, now) = client.inspect(name.as_str()).await.map(|read| (read.value, read.now))?;
    let breach = if dry_run {
        client.would_break(name.as_str(), token).await
    } else {
        client.break_hold(name.as_str(), token, why.as_str()).await
    };
    let breach = breach.map_err(|error| no_hold(error, token))?;
    output.answer(&Broken::new(&name, &breach, now), || break_text(&view, &breach, now))
}

/// The text of a break, with what the lock was like just before it.
fn break_text(view: &LockView, breach: &BreakReport, now: LogTime) -> String {
    let (did, next) = if breach.done { ("broken", "next is") } else { ("would be broken", "next would be") };
    let holder = &breach.holder;
    let seen = breach.last_seen.map_or(String::new(), |seen| format!(", last seen {} ago", ago(now, seen)));
    let others = view.holders.iter().any(|other| other.token != holder.token);
    let next = match &breach.next {
        Some(waiter) => {
            let session = waiter.session.map_or(String::new(), |session| format!(", session {session}"));
            format!("{next} {}{session}", called(&waiter.metadata))
        }
        None if others => "other clients still hold the lock".to_owned(),
        None if view.waiters.is_empty() => "no client waits".to_owned(),
        None => "the first waiter still waits".to_owned(),
    };
    let name = &view.lock.name;
    format!("{name}: the hold of {} (token {}{seen}) {did}; {next}", called(&holder.metadata), holder.token)
}

#[derive(Debug, Args)]
pub(in crate::cli) struct HandOverOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Id of the new holder: a session that waits for the lock, or one that accepts hand-overs
    #[arg(long, value_name = "SESSION")]
    to: SessionId,
}

/// Makes another session the holder, and prints the new token.
pub(in crate::cli) async fn hand_over(
    client: &Client,
    options: HandOverOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let HandOverOptions { hold: HoldArgs { name, token }, to } = options;
    let token = client.hand_over(name.as_str(), token, to).await.map_err(|error| no_hold(error, token))?;
    let (namespace, lock, session) = (client.settings.namespace.to_string(), name.to_string(), to.to_string());
    let answer = HandedOver { namespace, lock, token: token.to_string(), session };
    output.answer(&answer, || token.to_string())
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SemaphoreOptions {
    /// Name of the semaphore
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Number of permits, kept even while none is used [default: none, with --remove]
    #[arg(long, required_unless_present = "remove", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(PERMITS_MAX)))]
    limit: Option<u32>,
    /// Remove the limit when no permit is used
    #[arg(long, conflicts_with = "limit")]
    remove: bool,
}

/// Sets or removes the limit of a semaphore. Prints nothing without `--json`.
pub(in crate::cli) async fn semaphore(
    client: &Client,
    options: SemaphoreOptions,
    output: &Output,
) -> Result<u8, Failure> {
    match options.limit {
        Some(limit) => client.set_semaphore(options.name.as_str(), limit).await?,
        None => client.remove_semaphore(options.name.as_str()).await?,
    }
    let (namespace, lock) = (client.settings.namespace.to_string(), options.name.to_string());
    output.object_only(&Semaphore { namespace, lock, limit: options.limit })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{HolderView, Metadata, Mode, WaiterView};
    use crate::shapes::Holder;
    use crate::shapes::tests::{holder, lock, value};

    /// The caller gave a token, so the failure names the token, and the next step the lock.
    #[test]
    fn a_token_without_a_hold_is_named() {
        let failure = no_hold(ClientError::Refused(Refusal::NotHeld { lock: lock() }), FencingToken::new(0, 3));
        assert_eq!(failure.detail, "no hold of nightly has the token 3");
        assert_eq!(failure.next_step().as_deref(), Some("see who holds it with `lockkeeper show nightly`"));
    }

    /// The JSON of a break has the same holder as `show`, and null for fields that do not apply.
    #[test]
    fn a_break_has_the_holder_that_show_has() {
        let breach = BreakReport { done: false, holder: holder(), last_seen: Some(LogTime(1_500)), next: None };
        let broken = value(&Broken::new(&lock().name, &breach, LogTime(2_000)));
        assert_eq!(broken["holder"], value(&Holder::new(&holder(), LogTime(2_000))));
        let rest = [&broken["broken"], &broken["lock"], &broken["last_seen_ms"], &broken["next"]];
        assert_eq!(rest, [&json!(false), &json!("nightly"), &json!(500), &Value::Null]);
    }

    /// If a break names no next holder, its text says why: other clients hold the lock, the first waiter waits for more
    /// than this hold, or no client waits.
    #[test]
    fn a_break_without_a_next_holder_says_why() {
        let breach = BreakReport { done: true, holder: holder(), last_seen: None, next: None };
        let alone = LockView { holders: vec![holder()], ..LockView::free(lock()) };
        let (session, owner, metadata, since) = (None, None, Metadata::default(), LogTime(0));
        let waiter = WaiterView { place: 1, sequence: 1, session, owner, mode: Mode::Exclusive, metadata, since };
        let awaited = LockView { waiters: vec![waiter], ..alone.clone() };
        let other = HolderView { token: FencingToken::new(0, 18), ..holder() };
        let shared = LockView { holders: vec![holder(), other], ..awaited.clone() };
        for (view, end) in [
            (alone, "broken; no client waits"),
            (awaited, "broken; the first waiter still waits"),
            (shared, "broken; other clients still hold the lock"),
        ] {
            let text = break_text(&view, &breach, LogTime(2_000));
            assert!(text.starts_with("nightly: the hold of ann") && text.ends_with(end), "{text}");
        }
    }
}
