//! The only source of time and random numbers. Code that needs either gets a [`Clock`].
//!
//! Knows: model (for wall times). Never: what the time is used for, or sleeping, for which there is `tokio::time`.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::model::WallTime;
use crate::mutex::Mutex;

/// A point in time of one clock, in nanoseconds since the start of that clock. Comparable only within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// Returns the point this many nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start of the clock.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns this point plus a duration; the largest point if that would overflow.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the time from `earlier` to this point; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The last second of the year 9999, in milliseconds since 1970.
const LAST_DATE_MS: u64 = 253_402_300_799_000;

/// Returns a wall time for display as a date. RFC 3339 has no year after 9999, so a later time becomes the last second
/// of that year.
pub(crate) fn date_of(wall: WallTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(wall.0.min(LAST_DATE_MS))
}

/// Returns the whole milliseconds of a duration; `u64::MAX` if they do not fit.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the whole microseconds of a duration; `u64::MAX` if they do not fit.
#[cfg(feature = "cli")]
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Time and random numbers for one process. Code gets it as `Arc<dyn Clock>`, so that a simulation can use another one.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the monotonic time, which never decreases.
    fn now(&self) -> Instant;

    /// Returns the time of the wall clock, for display only.
    fn wall(&self) -> WallTime;

    /// Returns 128 random bits, suitable for a secret.
    fn random_u128(&self) -> u128;

    /// Returns a random number below `n`; 0 if `n` is 0. It has the tiny bias of a multiplication, which does not
    /// matter for jitter.
    fn random_below(&self, n: u64) -> u64 {
        let draw = self.random_u128() as u64;
        ((u128::from(draw) * u128::from(n)) >> 64) as u64
    }
}

/// The clock and the random numbers of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemClock(ClockId);

/// The clock that counts the time while the machine is suspended, if the system has one.
#[cfg(target_os = "linux")]
const SUSPEND_COUNTED: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const SUSPEND_COUNTED: ClockId = ClockId::Monotonic;

impl SystemClock {
    /// Creates the clock of clients. If the system has such a clock, it counts the time while the machine is suspended,
    /// because a lease also expires during that time.
    #[must_use]
    pub fn new() -> Self {
        Self(SUSPEND_COUNTED)
    }

    /// Creates the clock of servers. It stops while the machine is suspended: log time may be slow, but never fast.
    #[must_use]
    pub fn monotonic() -> Self {
        Self(ClockId::Monotonic)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let time = clock_gettime(self.0);
        // Both clocks begin at boot, so neither part is negative.
        Instant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }

    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(millis(since))
    }

    fn random_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("a system without entropy cannot create secrets, and must not pretend to");
        u128::from_le_bytes(bytes)
    }
}

/// A clock that only its owner advances, for tests and simulations. Its random numbers follow from its seed.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<Manual>,
}

const HOUR_NANOS: u64 = 3_600_000_000_000;

#[derive(Debug)]
struct Manual {
    now: Instant,
    wall_ms: u64,
    draws: u64,
    seed: u64,
}

impl ManualClock {
    /// Creates a clock that starts at one hour, so that tests can use earlier points.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let now = Instant::from_nanos(HOUR_NANOS);
        Self { state: Mutex::new(Manual { now, wall_ms: 1_767_225_600_000, draws: 0, seed }) }
    }

    /// Advances the clock.
    pub fn advance(&self, duration: Duration) {
        let mut state = self.state.lock();
        state.now = state.now.after(duration);
        state.wall_ms = state.wall_ms.saturating_add(millis(duration));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.state.lock().now
    }

    fn wall(&self) -> WallTime {
        WallTime(self.state.lock().wall_ms)
    }

    fn random_u128(&self) -> u128 {
        let mut state = self.state.lock();
        let mut half = || {
            state.draws += 1;
            u128::from(mixed(state.seed.wrapping_add(state.draws.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
        };
        (half() << 64) | half()
    }
}

/// The state of the random numbers of this process, if they follow from a seed.
static SEEDED: Mutex<Option<u64>> = Mutex::new(None);

/// Makes the random numbers of code without a [`Clock`] (such as Raft's election timeouts) follow from this seed. Only
/// a simulation calls this, and it runs in a separate process.
pub fn seed_draws(seed: u64) {
    *SEEDED.lock() = Some(seed);
}

/// Returns a random number for code that cannot get a [`Clock`]. It is called only a few times for each start of a
/// node, and for each attempt of a client to connect to the nodes that it does not use.
pub(crate) fn draw() -> u64 {
    let mut seeded = SEEDED.lock();
    match &mut *seeded {
        Some(state) => {
            *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mixed(*state)
        }
        None => SystemClock::monotonic().random_u128() as u64,
    }
}

/// The finalizer of SplitMix64: neighbouring inputs give unrelated outputs.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manual clock moves only when it is advanced, and two clocks with the same seed return the same numbers.
    #[test]
    fn a_manual_clock_is_reproducible() {
        let (one, two) = (ManualClock::new(7), ManualClock::new(7));
        let before = one.now();
        assert_eq!(one.now(), before);
        one.advance(Duration::from_millis(1_500));
        assert_eq!(one.now().since(before), Duration::from_millis(1_500));
        assert_eq!(one.random_u128(), two.random_u128());
        assert_ne!(one.random_u128(), two.random_below(u64::MAX).into());
    }

    /// The system's clocks do not go back, and random numbers stay below their bound.
    #[test]
    fn the_system_clock_goes_forward() {
        for clock in [SystemClock::new(), SystemClock::monotonic()] {
            let earlier = clock.now();
            assert!(earlier <= clock.now());
            assert!((0..100).all(|_| clock.random_below(3) < 3));
            assert_eq!(clock.random_below(0), 0);
        }
    }

    /// The variable that makes the next test print the two readings instead.
    #[cfg(target_os = "linux")]
    const PRINTED: &str = "LOCKKEEPER_CLOCKS_PRINTED";

    /// The clock of clients counts the time of a suspend, and the clock of servers does not. A time namespace adds a
    /// suspend of many hours, as the kernel does after one. The test does nothing where that is forbidden, and says so.
    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_clock_of_clients_counts_a_suspend() {
        use std::io::Write;
        use std::process::Command;

        const SUSPENDED_SECONDS: u64 = 100_000;
        let read = || [SystemClock::new(), SystemClock::monotonic()].map(|clock| clock.now().as_nanos());
        if std::env::var_os(PRINTED).is_some() {
            let [clients, servers] = read();
            return println!("\nREAD {clients} {servers}");
        }
        let namespace = || {
            let mut process = Command::new("unshare");
            process.args(["--user", "--map-root-user", "--time", "--fork"]);
            process.args(["--boottime", &SUSPENDED_SECONDS.to_string()]);
            process
        };
        if !namespace().arg("true").output().is_ok_and(|tried| tried.status.success()) {
            let skipped = "NOT CHECKED: whether the clock of clients counts a suspend; unshare --time is not permitted";
            return writeln!(std::io::stderr(), "{skipped}").expect("written");
        }
        let before = read();
        let mut process = namespace();
        process.arg(std::env::current_exe().expect("this test")).env(PRINTED, "1");
        process.args(["--exact", "clock::tests::only_the_clock_of_clients_counts_a_suspend", "--nocapture"]);
        let output = process.output().expect("started");
        let after = read();
        let text = String::from_utf8_lossy(&output.stdout);
        let readings = text.lines().find_map(|line| line.strip_prefix("READ ")).expect("the readings");
        let readings = readings.split(' ').map(|nanos| nanos.parse::<u64>().expect("nanoseconds"));
        let suspended = [SUSPENDED_SECONDS * 1_000_000_000, 0];
        for (((reading, before), after), suspended) in readings.zip(before).zip(after).zip(suspended) {
            assert!((before + suspended..=after + suspended).contains(&reading), "{before} {reading} {after}");
        }
    }

    /// A node may report any number, and a date of it is still shown.
    #[test]
    fn a_date_has_no_year_after_9999() {
        for (ms, date) in [
            (1_700_000_000_000, "2023-11-14T22:13:20Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(humantime::format_rfc3339_seconds(date_of(WallTime(ms))).to_string(), date);
        }
    }
}
