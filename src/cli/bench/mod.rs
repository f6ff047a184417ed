//! `bench`: measures a cluster with its own clients, and prints the figures.
//!
//! Knows: the client, and the usage of processes on this machine. Never: how the client works internally.

mod affinity;
mod checks;
mod context;
mod counters;
mod drain;
mod figures;
mod held;
mod options;
mod pace;
mod pairs;
mod report;
mod sessions;
mod usage;

use super::args::Common;
use super::connect::connect;
use super::error::{Failure, YES};
use super::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::service::ErrorCode;

use self::context::Bench;
pub(super) use self::options::BenchOptions;
use self::options::Workload;
use self::report::Report;
use self::usage::Servers;

/// Runs a workload and prints its figures. It uses its own lock names, which are free again afterwards.
pub(super) async fn bench(common: &Common, options: &BenchOptions, output: &Output) -> Result<u8, Failure> {
    options.checked()?;
    let clients = (0..options.connections()).map(|_| connect(common)).collect::<Result<Vec<_>, _>>()?;
    let servers = Servers::find(&options.pids, &clients[0].status().await?)?;
    let name = format!("bench-{:08x}", SystemClock::new().random_below(1 << 32));
    let bench = Bench { options, output, clients, servers, name };
    let report = match options.workload {
        Workload::Pairs | Workload::Handoff | Workload::Failover => pairs::measure(&bench).await?,
        Workload::Drain => drain::measure(&bench).await?,
        Workload::Sessions => sessions::measure(&bench).await?,
        Workload::Held => held::measure(&bench).await?,
        Workload::Affinity => affinity::measure(&bench).await?,
    };
    print(&report, output)
}

/// Prints the report. Fails if it is empty, or if a guarantee was broken.
fn print(report: &Report, output: &Output) -> Result<u8, Failure> {
    Failure::unless_closed(if output.json { output.object(report) } else { report.print(output) })?;
    if report.violations() != 0 {
        let detail = format!("{} grants broke the promise of one holder and growing tokens", report.violations());
        return Err(Failure::new(ErrorCode::Internal, detail));
    }
    if report.counted() == 0 {
        let first = report.errors.first_error.as_deref().unwrap_or("no request ended in time");
        let detail = format!("no request was answered, so there are no figures ({first})");
        return Err(Failure::new(ErrorCode::Unreachable, detail));
    }
    Ok(YES)
}
