//! `drill`: three real nodes on this machine fail one after the other while clients use them, and the drill judges what
//! the clients observed.
//!
//! Knows: the client, and processes of this machine. Never: how nodes and the client work internally.

mod contenders;
mod figures;
mod journal;
mod live;
mod nodes;
mod page;
mod probes;
mod report;
mod schedule;
mod verdict;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::error::{Failure, NO, YES};
use super::files::Outcome;
use super::lock::signals::{self, Signals};
use super::output::Output;
use crate::config::Profile;

use self::journal::{Journal, Timeline};
use self::nodes::Nodes;
use self::report::Report;
use self::schedule::Plan;

#[derive(Debug, Args)]
pub(super) struct DrillOptions {
    #[command(flatten)]
    plan: Plan,
    /// Timing of the nodes
    #[arg(long, default_value = "lan", value_parser = profiles(), value_name = "PROFILE")]
    profile: Profile,
    /// Also write the report to this file, as a page for a browser [default: none]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

fn profiles() -> impl TypedValueParser<Value = Profile> {
    let names = PossibleValuesParser::new([Profile::Lan, Profile::Fast, Profile::Wan].map(Profile::name));
    names.try_map(|name| Profile::from_name(&name).ok_or("unknown profile"))
}

/// Runs a drill and prints its report. The exit code is 1 if a promise was broken. The calling thread must last as long
/// as the process, because the nodes end with it.
pub(super) async fn run(options: &DrillOptions, output: &Output) -> Result<u8, Failure> {
    // A file that cannot be written is reported before the drill, not after it.
    let opened = |path: &PathBuf| {
        let unmade = |error| format!("--report {}: {error}; check the path", path.display());
        Outcome::open(path).map_err(|error| Failure::usage("--report", unmade(error)))
    };
    let file = options.report.as_ref().map(opened).transpose()?;
    let mut signals = Signals::listen()?;
    let mut nodes = Nodes::create(options.profile)?;
    let journal = Arc::new(Journal::new(contenders::timeline()));
    let ran = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            nodes.end(false).await?;
            return Ok(signals::exit_code(signal));
        }
        ran = schedule::run(options.plan, options.profile, &mut nodes, &journal, output) => ran,
    };
    let timeline = journal.finish();
    let broken = verdict::judge(&timeline);
    let dir = nodes.end(!broken.is_empty() || ran.is_err()).await?;
    let mut report = Report::new(&timeline, options.profile, &broken);
    report.dir = dir.map(|dir| dir.display().to_string());
    // Without a broken promise, a drill that ended early has no result.
    if broken.is_empty()
        && let Err(failure) = ran
    {
        let detail = format!("{}; the files of the nodes are in {}", failure.detail, report.dir.unwrap_or_default());
        return Err(Failure { detail, ..failure });
    }
    let printed = if output.json { output.object(&report) } else { report.print(output) };
    let page = file.map_or(Ok(()), |file| write_page(file, &timeline, &report));
    let reported = page.and(printed);
    if broken.is_empty() {
        return reported.map(|()| YES);
    }
    // Neither a closed pipe nor a full disk must turn a broken promise into another result.
    if let Err(failure) = &reported {
        output.failure(failure);
    }
    Ok(NO)
}

/// Writes the report as a page.
fn write_page(file: Outcome, timeline: &Timeline, report: &Report) -> Result<(), Failure> {
    let unwritten = |error: &dyn Display| Failure::stopped(format!("the page of --report was not written: {error}"));
    let page = page::page(timeline, report).map_err(|error| unwritten(&error))?;
    file.write(page.as_bytes()).map_err(|error| unwritten(&error))
}

#[cfg(test)]
mod tests;
