//! The clocks of a run: simulated time with the rate and the jumps of each process.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::clock::{Clock, Instant};
use lockkeeper::model::WallTime;

use crate::random::Random;

/// The newest reading of simulated time, and whether time is frozen. While a process is stopped, its runtime does not
/// exist, so the simulation cannot be read.
static NEWEST: AtomicU64 = AtomicU64::new(0);
static FROZEN: AtomicBool = AtomicBool::new(false);

/// Freezes or unfreezes the simulated time that clocks read.
pub(crate) fn freeze(frozen: bool) {
    FROZEN.store(frozen, Ordering::Relaxed);
}

/// Simulated time since the start of the run. This is true time, which no simulated process can read.
pub(crate) fn truth() -> Duration {
    if !FROZEN.load(Ordering::Relaxed)
        && let Some(elapsed) = turmoil::sim_elapsed()
    {
        NEWEST.fetch_max(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    newest()
}

/// The newest reading, for threads outside the simulation.
pub(crate) fn newest() -> Duration {
    Duration::from_nanos(NEWEST.load(Ordering::Relaxed))
}

const HOUR_NANOS: u64 = 3_600_000_000_000;
const MILLION: u64 = 1_000_000;

/// The clock of one simulated process. Its random numbers follow from the seed.
#[derive(Debug)]
pub(crate) struct SimClock {
    /// How many seconds of this clock pass in a million true seconds.
    rate: u64,
    /// The sum of all jumps and stops. After a decrease, the clock stands still until its own time has caught up.
    jumped_nanos: AtomicI64,
    wall_ms: AtomicU64,
    /// How often the clock and its wall clock were read.
    reads: [AtomicU64; 2],
    newest: AtomicU64,
    draws: std::sync::Mutex<Random>,
}

impl SimClock {
    /// A clock whose rate differs from true time by at most `drift` millionths.
    pub(crate) fn new(random: &mut Random, drift: u64) -> Self {
        let rate = MILLION - drift + random.below(2 * drift + 1);
        let draws = std::sync::Mutex::new(random.fork());
        let wall_ms = AtomicU64::new(1_767_225_600_000);
        Self {
            rate,
            jumped_nanos: AtomicI64::new(0),
            wall_ms,
            reads: Default::default(),
            newest: AtomicU64::new(0),
            draws,
        }
    }

    /// Moves the clock forward, as after the suspend of a machine.
    pub(crate) fn jump(&self, by: Duration) {
        self.jumped_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Stops the clock for this duration, as on a machine whose clock does not include suspends.
    pub(crate) fn stand_still(&self, by: Duration) {
        self.jumped_nanos.fetch_sub(i64::try_from(by.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    /// How often the clock and its wall clock were read so far.
    pub(crate) fn reads(&self) -> [u64; 2] {
        self.reads.each_ref().map(|reads| reads.load(Ordering::Relaxed))
    }

    /// Sets the wall clock forward or back by an hour.
    pub(crate) fn set_wall(&self, forward: bool) {
        let hour = HOUR_NANOS / MILLION;
        let change = |ms: u64| Some(if forward { ms + hour } else { ms - hour });
        self.wall_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok();
    }

    /// The true length of a duration on this clock.
    pub(crate) fn in_truth(&self, own: Duration) -> Duration {
        own.mul_f64(MILLION as f64 / self.rate as f64)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        let truth = u64::try_from(truth().as_nanos()).unwrap_or(u64::MAX);
        let own = (u128::from(truth) * u128::from(self.rate) / u128::from(MILLION)) as u64;
        self.reads[0].fetch_add(1, Ordering::Relaxed);
        let now = (HOUR_NANOS + own).saturating_add_signed(self.jumped_nanos.load(Ordering::Relaxed));
        Instant::from_nanos(self.newest.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn wall(&self) -> WallTime {
        self.reads[1].fetch_add(1, Ordering::Relaxed);
        WallTime(self.wall_ms.load(Ordering::Relaxed) + u64::try_from(truth().as_millis()).unwrap_or(0))
    }

    fn random_u128(&self) -> u128 {
        let mut draws = self.draws.lock().unwrap();
        (u128::from(draws.next()) << 64) | u128::from(draws.next())
    }
}
