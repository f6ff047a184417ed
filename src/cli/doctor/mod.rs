//! `doctor`: checks a node and its cluster, and advises.

mod cluster;
mod disk;
mod finding;
mod host;
mod listeners;
mod nodes;

use std::path::{Path, PathBuf};

use clap::Args;

use self::finding::{Finding, Level};
use super::args::Common;
use super::connect::{Client, connect, scraper};
use super::error::{Failure, NO, YES};
use super::output::Output;
use crate::auth::Access;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, ConfigError};
use crate::http::Scraper;
use crate::service::Status;

#[derive(Debug, Args)]
pub(super) struct DoctorOptions {
    /// Also check the node of this configuration: its directory, disk, ports and certificates; run it on the node's
    /// machine, as the node's user. Without --endpoints, its members are asked [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Prints a line for each check, and the advice below it. The answer is no after a failure.
pub(super) async fn run(common: &Common, options: &DoctorOptions, output: &Output) -> Result<u8, Failure> {
    let config = options.config.as_deref().map(|file| (file, Config::from_file(file)));
    let endpoints = match &config {
        Some((_, Ok(config))) if !common.endpoints_given => {
            config.members.values().map(|member| member.client.clone()).collect()
        }
        Some(_) | None => common.endpoints.clone(),
    };
    let common = &Common { endpoints, ..common.clone() };
    let (client, scraper) = (connect(common)?, scraper(common)?);
    let mut report = Report { output, worst: Level::Ok };
    report.print(host::checks())?;
    if let Some((file, config)) = config {
        local(file, config, &mut report)?;
    }
    remote(&client, &scraper, &mut report).await?;
    Ok(if report.worst == Level::Fail { NO } else { YES })
}

/// Checks the node of a configuration.
fn local(file: &Path, config: Result<Config, ConfigError>, report: &mut Report<'_>) -> Result<(), Failure> {
    const CHECK: &str = "config";
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            let detail = format!("{}: {}", error.place, error.problem);
            return report.print([Finding::fail(CHECK, detail, error.fix)]);
        }
    };
    let detail = format!("{}: node {} of {}", file.display(), config.node, config.cluster);
    let rules = config.auth.as_ref().map(|rules| Access::from_file(rules, SystemClock::new().wall())).transpose();
    report.print([match &rules {
        Ok(_) => Finding::ok(CHECK, detail),
        Err(error) => Finding::fail(CHECK, error.to_string(), "see `lockkeeper auth check`"),
    }])?;
    let access = rules.ok().flatten();
    let (findings, runs) = disk::checks(&config);
    report.print(findings)?;
    report.print(listeners::checks(&config, access.as_ref(), runs))
}

/// Checks the parts of the cluster that answer.
async fn remote(client: &Client, scraper: &Scraper, report: &mut Report<'_>) -> Result<(), Failure> {
    let status = match client.status().await {
        Ok(status) => status,
        Err(error) => {
            let advice = "check --endpoints and --ca, and that the nodes run";
            return report.print([Finding::fail("quorum", error.to_string(), advice)]);
        }
    };
    report.print(cluster::checks(&status))?;
    if status.leader.is_some() {
        report.print([cluster::round_trips(&status, client.service()).await])?;
    }
    report.print(nodes::checks(&status, scraper).await)
}

/// What the nodes should have in common and do not, with an advice each: the version and the time of day. Of each node,
/// `walls` has the seconds by which its clock is ahead of the one here.
pub(super) fn differences(status: &Status, walls: &[(u64, i64)]) -> Vec<String> {
    let found = [Some(cluster::versions(status)), nodes::wall_clocks(walls)].into_iter().flatten();
    found.filter_map(|finding| Some(format!("{}; {}", finding.detail, finding.advice?))).collect()
}

/// Prints findings, and remembers the worst level of them.
struct Report<'a> {
    output: &'a Output,
    worst: Level,
}

impl Report<'_> {
    fn print(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), Failure> {
        for finding in findings {
            self.worst = self.worst.max(finding.level);
            if self.output.json {
                Failure::unless_closed(self.output.object(&finding))?;
                continue;
            }
            for line in finding.lines() {
                Failure::unless_closed(self.output.line(line))?;
            }
        }
        Ok(())
    }
}
