//! `break`: ends a hold of another client.

use clap::Args;

use crate::cli::args::HoldArgs;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{ago, called};
use crate::model::{BreakReport, LockName, LogTime, Reason};
use crate::shapes::Broken;

#[derive(Debug, Args)]
pub(in crate::cli) struct BreakOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Reason, shown with the lock and in its history
    #[arg(long, value_parser = Reason::parse, value_name = "TEXT")]
    why: Reason,
    /// Only print what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Ends a hold, or prints what that would do.
pub(in crate::cli) async fn run(client: &Client, options: BreakOptions, output: &Output) -> Result<u8, Failure> {
    let BreakOptions { hold: HoldArgs { name, token }, why, dry_run } = options;
    // Read before the break, so that an error here is not mistaken for an error of the break. Ages count from this
    // time.
    let now = client.inspect(name.as_str()).await?.now;
    let breach = if dry_run {
        client.would_break(name.as_str(), token).await?
    } else {
        client.break_hold(name.as_str(), token, why.as_str()).await?
    };
    output.answer(&Broken::new(&name, &breach, now), || text(&name, &breach, now))?;
    Ok(YES)
}

fn text(name: &LockName, breach: &BreakReport, now: LogTime) -> String {
    let (did, next) = if breach.done { ("broken", "next is") } else { ("would be broken", "next would be") };
    let holder = &breach.holder;
    let seen = breach.last_seen.map_or(String::new(), |seen| format!(", last seen {} ago", ago(now, seen)));
    let next = breach.next.as_ref().map_or("no client waits".to_owned(), |waiter| {
        let session = waiter.session.map_or(String::new(), |session| format!(", session {session}"));
        format!("{next} {}{session}", called(&waiter.metadata))
    });
    format!("{name}: the hold of {} (token {}{seen}) {did}; {next}", called(&holder.metadata), holder.token)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::shapes::Holder;
    use crate::shapes::tests::{holder, lock, value};

    /// The JSON of a break has the same holder as `show`, and null for fields that do not apply.
    #[test]
    fn a_break_has_the_holder_that_show_has() {
        let breach = BreakReport { done: false, holder: holder(), last_seen: Some(LogTime(1_500)), next: None };
        let broken = value(&Broken::new(&lock().name, &breach, LogTime(2_000)));
        assert_eq!(broken["holder"], value(&Holder::new(&holder(), LogTime(2_000))));
        let rest = [&broken["broken"], &broken["lock"], &broken["last_seen_ms"], &broken["next"]];
        assert_eq!(rest, [&json!(false), &json!("nightly"), &json!(500), &Value::Null]);
    }
}
