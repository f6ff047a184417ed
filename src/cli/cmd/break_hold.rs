//! `break`: ends a hold of another client, or prints what that would do.

use clap::Args;

use crate::cli::args::HoldArgs;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, no_hold};
use crate::cli::output::Output;
use crate::cli::text::{ago, called};
use crate::model::{BreakReport, LockView, LogTime, Reason};
use crate::shapes::Broken;

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
pub(in crate::cli) async fn run(client: &Client, options: BreakOptions, output: &Output) -> Result<u8, Failure> {
    let BreakOptions { hold: HoldArgs { name, token }, why, dry_run } = options;
    // The lock is read before the break, so that an error of this read is not mistaken for an error of the break. Ages
    // count from the time of this read.
    let (view, now) = client.inspect(name.as_str()).await.map(|read| (read.value, read.now))?;
    let report = if dry_run {
        client.would_break(name.as_str(), token).await
    } else {
        client.break_hold(name.as_str(), token, why.as_str()).await
    };
    let report = report.map_err(|error| no_hold(error, token))?;
    output.answer(&Broken::new(&name, &report, now), || break_text(&view, &report, now))
}

/// The text of a break, with what the lock was like just before it.
fn break_text(view: &LockView, report: &BreakReport, now: LogTime) -> String {
    let (did, next_is) = if report.done { ("broken", "next is") } else { ("would be broken", "next would be") };
    let holder = &report.holder;
    let seen = report.last_seen.map_or(String::new(), |seen| format!(", last seen {} ago", ago(now, seen)));
    let others = view.holders.iter().any(|other| other.token != holder.token);
    let next = match &report.next {
        Some(waiter) => {
            let session = waiter.session.map_or(String::new(), |session| format!(", session {session}"));
            format!("{next_is} {}{session}", called(&waiter.metadata))
        }
        None if others => "other clients still hold the lock".to_owned(),
        None if view.waiters.is_empty() => "no client waits".to_owned(),
        None => "the first waiter still waits".to_owned(),
    };
    let name = &view.lock.name;
    format!("{name}: the hold of {} (token {}{seen}) {did}; {next}", called(&holder.metadata), holder.token)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{FencingToken, HolderView, Metadata, Mode, WaiterView};
    use crate::shapes::Holder;
    use crate::shapes::tests::{holder, lock, value};

    /// The JSON of a break has the same holder as `show`, and null for fields that do not apply.
    #[test]
    fn a_break_has_the_holder_that_show_has() {
        let report = BreakReport { done: false, holder: holder(), last_seen: Some(LogTime(1_500)), next: None };
        let broken = value(&Broken::new(&lock().name, &report, LogTime(2_000)));
        assert_eq!(broken["holder"], value(&Holder::new(&holder(), LogTime(2_000))));
        let rest = [&broken["broken"], &broken["lock"], &broken["last_seen_ms"], &broken["next"]];
        assert_eq!(rest, [&json!(false), &json!("nightly"), &json!(500), &Value::Null]);
    }

    /// If a break names no next holder, its text says why: other clients hold the lock, the first waiter waits for more
    /// than this hold, or no client waits.
    #[test]
    fn a_break_without_a_next_holder_says_why() {
        let report = BreakReport { done: true, holder: holder(), last_seen: None, next: None };
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
            let text = break_text(&view, &report, LogTime(2_000));
            assert!(text.starts_with("nightly: the hold of ann") && text.ends_with(end), "{text}");
        }
    }
}
