//! The workloads that acquire and release for a given time: pairs, handoff and failover.

use std::sync::Arc;
use std::time::Duration;

use super::checks::{HandOvers, Outages};
use super::context::Bench;
use super::counters::Sample;
use super::figures::{FailoverFigures, HandoffFigures, PairFigures};
use super::options::{BenchOptions, Workload};
use super::pace::Span;
use super::report::{Figures, Report};
use super::sessions;
use super::usage::Usage;
use super::workers::Load;
use crate::cli::error::Failure;
use crate::client::Session;
use crate::limits::BENCH_NAMED_MAX;
use crate::service::LockService;

/// The outcome of a load.
pub(super) struct Ran {
    pub(super) sample: Sample,
    pub(super) pairs: PairFigures,
    pub(super) usage: Usage,
    load: Arc<Load>,
}

impl<S: LockService> Bench<'_, S> {
    /// Makes pairs for the requested time, after the warm-up.
    pub(super) async fn pairs(&self, sessions: &[Session<S>]) -> Ran {
        let options = self.options;
        let span = Span::from_now(options.warm_up, Duration::from_secs(u64::from(options.secs)));
        let mut load = Load::new(span, options.rate);
        load.hand_overs = (options.workload == Workload::Handoff).then(HandOvers::default);
        load.outages = (options.workload == Workload::Failover).then(|| Outages::new(options.gap, span.counted));
        let load = Arc::new(load);
        let name = |number: usize, lane: u32| match load.hand_overs {
            Some(_) => self.name.clone(),
            None => format!("{}/{number}.{lane}", self.name),
        };
        let progress = || {
            let outages = load.outages.as_ref().map_or(String::new(), |all| format!(", {} outages", all.count()));
            format!("{} done{outages}", load.gathered.lock().pairs.len())
        };
        let (never_begun, (first, last)) =
            tokio::join!(load.run(sessions, options.in_flight, name), self.watch(span, progress));
        let (sample, usage) = (std::mem::take(&mut *load.gathered.lock()), self.servers.between(&first, &last));
        let mut pairs = PairFigures::new(options, &sample, span.length(), &usage);
        pairs.never_begun = never_begun;
        Ran { sample, pairs, usage, load }
    }
}

/// Measures one of the workloads that only make pairs.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let options = bench.options;
    if options.workload == Workload::Failover {
        bench.output.remark("now kill a node or transfer leadership; outages are listed at the end");
    }
    let sessions = sessions::open(&bench.clients, options.clients, options).await?;
    let ran = bench.pairs(&sessions).await;
    let lost_sessions = sessions::lost(&sessions);
    sessions::close(sessions).await;
    let figures = figures(options, &ran);
    Ok(Report::new(bench, figures, ran.usage, lost_sessions, ran.sample.errors))
}

fn figures(options: &BenchOptions, ran: &Ran) -> Figures {
    let (sample, span) = (&ran.sample, ran.load.span);
    let handoff = ran.load.hand_overs.as_ref().map(|_| HandoffFigures::new(sample, span.length(), &ran.usage));
    let progress =
        |outages: &Outages| FailoverFigures::new(options.gap, &outages.all(span.end), span.counted, BENCH_NAMED_MAX);
    let failover = ran.load.outages.as_ref().map(progress);
    Figures { pairs: Some(ran.pairs.clone()), handoff, failover, ..Figures::default() }
}
