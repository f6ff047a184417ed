//! The workloads that acquire and release for a given time: pairs, handoff and failover. A lane makes one pair after
//! another, and a client has one lane for each pair in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::checks::{HandOvers, Outages, Passed};
use super::context::Bench;
use super::counters::{Errors, Sample};
use super::figures::{FailoverFigures, HandoffFigures, PairFigures};
use super::options::Workload;
use super::pace::{Span, Turns};
use super::report::{Figures, Report};
use super::sessions;
use super::usage::Usage;
use crate::cli::error::Failure;
use crate::client::{ClientError, HoldState, Session};
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits::{BENCH_NAMED_MAX, RETRY_MS_MIN};
use crate::mutex::Mutex;
use crate::service::LockService;

/// The outcome of a run.
pub(super) struct Ran {
    pub(super) figures: Figures,
    pub(super) usage: Usage,
    pub(super) errors: Errors,
}

/// The data that all lanes of a run share.
#[derive(Debug)]
struct Load {
    span: Span,
    turns: Arc<Turns>,
    /// Locked for less than a microsecond, and never across an await.
    gathered: Mutex<Sample>,
    /// Set if all clients use one lock.
    hand_overs: Option<HandOvers>,
    /// Set for the workload that measures outages.
    outages: Option<Outages>,
}

/// Measures one of the workloads that only make pairs.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    if bench.options.workload == Workload::Failover {
        bench.output.remark("now kill a node or transfer leadership; outages are listed at the end");
    }
    let sessions = sessions::open(bench, bench.options.clients).await?;
    let Ran { figures, usage, errors } = bench.pairs(&sessions).await;
    let lost_sessions = sessions::lost(&sessions);
    sessions::close(sessions).await;
    Ok(Report::new(bench, figures, usage, lost_sessions, errors))
}

impl<S: LockService> Bench<'_, S> {
    /// Makes pairs for the requested time, after the warm-up.
    pub(super) async fn pairs(&self, sessions: &[Session<S>]) -> Ran {
        let (options, span) = (self.options, self.span());
        let load = Arc::new(Load {
            span,
            turns: Arc::new(Turns::new(span, options.rate)),
            gathered: Mutex::default(),
            hand_overs: (options.workload == Workload::Handoff).then(HandOvers::default),
            outages: (options.workload == Workload::Failover).then(|| Outages::new(options.gap, span.counts_from)),
        });
        let progress = || {
            let outages = load.outages.as_ref().map_or(String::new(), |all| format!(", {} outages", all.count()));
            format!("{} done{outages}", load.gathered.lock().pairs.len())
        };
        let (never_begun, (first, last)) = tokio::join!(self.run(&load, sessions), self.watch(span, progress));
        let (sample, usage) = (std::mem::take(&mut *load.gathered.lock()), self.servers.between(&first, &last));
        let failover = |outages: &Outages| {
            FailoverFigures::new(options.gap, &outages.all(span.end), span.counts_from, BENCH_NAMED_MAX)
        };
        let figures = Figures {
            pairs: Some(PairFigures::new(options, &sample, never_begun, span.length(), &usage)),
            handoff: load.hand_overs.as_ref().map(|_| HandoffFigures::new(&sample, span.length(), &usage)),
            failover: load.outages.as_ref().map(failover),
            ..Figures::default()
        };
        Ran { figures, usage, errors: sample.errors }
    }

    /// Runs all lanes to the end. Returns how many pairs were due and never begun.
    async fn run(&self, load: &Arc<Load>, sessions: &[Session<S>]) -> u64 {
        let mut lanes = JoinSet::new();
        for (client, session) in sessions.iter().enumerate() {
            for lane in 0..self.options.in_flight {
                let name = match load.hand_overs {
                    Some(_) => self.name.clone(),
                    None => format!("{}/{client}.{lane}", self.name),
                };
                let lane = Lane { client: client as u64, session: session.clone(), name, load: Arc::clone(load) };
                lanes.spawn(lane.run());
            }
        }
        let (never_begun, _) = tokio::join!(Arc::clone(&load.turns).keep_time(), lanes.join_all());
        never_begun
    }
}

struct Lane<S: LockService> {
    client: u64,
    session: Session<S>,
    name: String,
    load: Arc<Load>,
}

/// The times of a completed pair.
struct Made {
    granted: Instant,
    ended: Instant,
}

impl<S: LockService> Lane<S> {
    async fn run(self) {
        let mut served = self.load.span.began;
        while let Some(due) = self.load.turns.next().await {
            match self.pair().await {
                Ok(Some(made)) => {
                    self.count(due, &made);
                    if let Some(outages) = &self.load.outages {
                        outages.served(served, made.ended);
                    }
                    served = made.ended;
                }
                Ok(None) => self.load.gathered.lock().unfinished += 1,
                Err(error) => {
                    self.load.gathered.lock().errors.count(&error);
                    if self.session.state() == HoldState::Lost {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(RETRY_MS_MIN)).await;
                }
            }
        }
    }

    /// Acquires and releases. Returns `None` if the run ended during the wait.
    async fn pair(&self) -> Result<Option<Made>, ClientError> {
        let clock = SystemClock::new();
        let left = self.load.span.end.since(clock.now());
        let guard = match self.session.lock(&self.name).wait(left).acquire().await {
            Ok(guard) => guard,
            Err(ClientError::NotAcquired { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let granted = clock.now();
        if let Some(hand_overs) = &self.load.hand_overs {
            let passed = hand_overs.granted(self.client, guard.token(), granted);
            self.count_passed(passed, granted);
            hand_overs.releasing(clock.now());
        }
        guard.release().await?;
        Ok(Some(Made { granted, ended: clock.now() }))
    }

    /// Counts pairs that were answered after the warm-up, even if they were due before. The rate includes only pairs
    /// that were answered before the end.
    fn count(&self, due: Instant, made: &Made) {
        let span = self.load.span;
        if made.ended < span.counts_from {
            return;
        }
        let mut sample = self.load.gathered.lock();
        sample.pairs.record(made.ended.since(due));
        sample.acquires.record(made.granted.since(due));
        sample.in_time += u64::from(made.ended <= span.end);
    }

    fn count_passed(&self, passed: Passed, granted: Instant) {
        let span = self.load.span;
        let mut sample = self.load.gathered.lock();
        sample.violations += u64::from(passed.violated);
        if span.counts_from <= granted && granted <= span.end {
            sample.handoffs += u64::from(passed.handed_over);
            passed.gap.iter().for_each(|gap| sample.gaps.record(*gap));
        }
    }
}
