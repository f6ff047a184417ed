//! Clients that acquire and release. A lane makes one pair after another. A client has one lane for each pair in
//! flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::checks::{HandOvers, Outages, Passed};
use super::counters::Sample;
use super::pace::{Span, Turns};
use crate::client::{ClientError, HoldState, Session};
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;
use crate::mutex::Mutex;
use crate::service::LockService;

/// The data that all lanes of a run share.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) span: Span,
    pub(super) turns: Arc<Turns>,
    /// Locked for less than a microsecond, and never across an await.
    pub(super) gathered: Mutex<Sample>,
    /// Set if all clients use one lock.
    pub(super) hand_overs: Option<HandOvers>,
    /// Set for the workload that measures outages.
    pub(super) outages: Option<Outages>,
}

impl Load {
    /// Creates a load over this span, with a rate for an open loop.
    pub(super) fn new(span: Span, rate: Option<u32>) -> Self {
        let turns = Arc::new(Turns::new(span, rate));
        Self { span, turns, gathered: Mutex::default(), hand_overs: None, outages: None }
    }

    /// Runs all lanes to the end, and collects their counters in `gathered`. Returns how many pairs were due and never
    /// begun.
    pub(super) async fn run<S: LockService>(
        self: &Arc<Self>,
        sessions: &[Session<S>],
        in_flight: u32,
        name: impl Fn(usize, u32) -> String,
    ) -> u64 {
        let mut lanes = JoinSet::new();
        for (number, session) in sessions.iter().enumerate() {
            for lane in 0..in_flight {
                let (name, load) = (name(number, lane), Arc::clone(self));
                lanes.spawn(Lane { number: number as u64, session: session.clone(), name, load }.run());
            }
        }
        let (never_begun, _) = tokio::join!(Arc::clone(&self.turns).keep_time(), lanes.join_all());
        never_begun
    }
}

struct Lane<S: LockService> {
    number: u64,
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
                    tokio::time::sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
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
            let passed = hand_overs.granted(self.number, guard.token(), granted);
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
        if made.ended < span.counted {
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
        if span.counted <= granted && granted <= span.end {
            sample.handoffs += u64::from(passed.handed_over);
            passed.gap.iter().for_each(|gap| sample.gaps.record(*gap));
        }
    }
}
