//! `drill`: a failover drill on this machine.

use std::path::PathBuf;

use clap::Args;

use crate::cli::drill::{self, Plan, Victim};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::limits::DRILL_ROUNDS_MAX;

/// Rounds without the option.
const ROUNDS: u32 = 5;

#[derive(Debug, Args)]
pub(in crate::cli) struct DrillOptions {
    /// The node that is killed and stopped
    #[arg(long, default_value = "leader", value_enum, value_name = "NODE")]
    kill: Victim,
    /// Number of rounds. Each has a kill, an orderly stop and a transfer of leadership
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DRILL_ROUNDS_MAX)), value_name = "COUNT")]
    rounds: u32,
    /// Pause the node instead of killing it, and continue it later
    #[arg(long)]
    pause: bool,
    /// Kill or pause all nodes at once
    #[arg(long)]
    all: bool,
    /// Also write the report to this file, as a page for a browser [default: none]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Runs a drill. The exit code is 1 if a promise was broken.
pub(in crate::cli) async fn run(options: &DrillOptions, output: &Output) -> Result<u8, Failure> {
    let DrillOptions { kill, rounds, pause, all, ref report } = *options;
    drill::run(Plan { victim: kill, rounds, pause, all }, report.as_deref(), output).await
}
