//! A clock that follows tokio's, which a test may pause, and waits in its time.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::model::WallTime;

/// The time of tokio's clock, which a test may pause.
#[derive(Debug)]
pub(super) struct TokioClock {
    pub(super) begun: tokio::time::Instant,
    draws: AtomicU64,
    /// The step from one random number to the next.
    step: AtomicU64,
}

pub(super) const HOUR_MS: u64 = 3_600_000;
/// Time between two checks of a condition, in simulated time.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Waits until the condition holds, for at most five minutes of simulated time.
pub(super) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..300_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(TICK).await;
    }
    panic!("the condition was never true");
}

impl TokioClock {
    pub(super) fn new() -> Self {
        Self { begun: tokio::time::Instant::now(), draws: AtomicU64::new(0), step: AtomicU64::new(1) }
    }

    /// Makes random numbers below a bound differ from now on. Before, each of them is 0.
    pub(super) fn draw_apart(&self) {
        self.step.store(u64::MAX / 7 * 3, SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(0).after(Duration::from_millis(HOUR_MS) + self.begun.elapsed())
    }

    fn wall(&self) -> WallTime {
        WallTime(0)
    }

    fn random_u128(&self) -> u128 {
        u128::from(self.draws.fetch_add(self.step.load(SeqCst), SeqCst))
    }
}
