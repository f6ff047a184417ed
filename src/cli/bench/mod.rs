//! `bench`: measures a cluster with a closed loop of clients, and says what it measured.
//!
//! Knows: the client. Never: what happens behind it.

mod report;
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use self::report::{Report, Sample};
use super::YES;
use super::failure::Failure;
use super::options::BenchOptions;
use super::output::Output;
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::limits;
use crate::service::{LockService, Word};

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Workload {
    /// Every client acquires and releases a lock of its own, again and again.
    Pairs,
    /// All clients want the same lock, and pass it on at once.
    Handoff,
}

impl Workload {
    /// Its name in options and answers.
    #[must_use]
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Workload::Pairs => "pairs",
            Workload::Handoff => "handoff",
        }
    }
}

/// Runs a workload and prints its figures. It uses lock names of its own, which are free again afterwards.
pub(super) async fn bench<S: LockService>(
    client: &Client<S>,
    options: &BenchOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let clock = SystemClock::new();
    let run = format!("bench-{:08x}", clock.random_below(1 << 32));
    let sessions = workload::open_sessions(client, options.clients).await?;
    let done = Arc::new(AtomicU64::new(0));
    let began = clock.now();
    let end = began.after(Duration::from_secs(u64::from(options.secs)));
    let mut clients = JoinSet::new();
    for (number, session) in sessions.into_iter().enumerate() {
        let name = match options.workload {
            Workload::Pairs => format!("{run}/{number}"),
            Workload::Handoff => run.clone(),
        };
        clients.spawn(workload::work(session, name, end, Arc::clone(&done)));
    }
    let bar = progress(options, output);
    let sample = gather(clients, &bar, &done).await?;
    bar.finish_and_clear();
    let report = Report::new(options, &sample, clock.now().since(began));
    if output.json {
        output.object(&report)?;
    } else {
        output.table(&report.heading(), &[report.row()])?;
    }
    if sample.latencies.is_empty() {
        return Err(Failure::new(Word::Unreachable, "nothing was answered: there is nothing to measure"));
    }
    Ok(YES)
}

async fn gather(mut clients: JoinSet<Sample>, bar: &ProgressBar, done: &AtomicU64) -> Result<Sample, Failure> {
    let mut all = Sample::default();
    let mut tick = tokio::time::interval(Duration::from_millis(limits::PROGRESS_TICK_MS));
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                Some(Ok(sample)) => all.add(&sample),
                Some(Err(error)) => return Err(Failure::new(Word::Internal, error.to_string())),
                None => return Ok(all),
            },
            _ = tick.tick() => {
                bar.set_position(bar.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
                bar.set_message(format!("{} done", done.load(Ordering::Relaxed)));
            }
        }
    }
}

fn progress(options: &BenchOptions, output: &Output) -> ProgressBar {
    if !output.watched || output.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {elapsed}  {msg}");
    ProgressBar::new(u64::from(options.secs) * 1000)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(options.workload.name())
}
