//! Times one part of the program: 30 samples after a warm-up, printed as their quartiles and a rate.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

const WARM_UP: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLES: usize = 30;
/// Largest number of rounds in one sample, so that it is exact as a floating-point number.
const ROUNDS_MAX: u64 = 1 << 30;

/// Measures the parts whose names contain an argument of the command line.
pub(crate) struct Timer {
    filters: Vec<String>,
}

impl Timer {
    /// Reads the arguments of the command line. Ignores options that Cargo adds, such as `--bench`.
    pub(crate) fn from_arguments() -> Self {
        Self { filters: std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect() }
    }

    /// Whether the command line selects this part.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| part.contains(filter.as_str()))
    }

    /// Measures and prints the cost of one round. `run` makes N rounds and returns the time that they took, without
    /// their preparation. The rate counts `elements` per round.
    pub(crate) fn measure(&self, part: &str, elements: u64, mut run: impl FnMut(u64) -> Duration) {
        if !self.wants(part) {
            return;
        }
        let rounds = rounds_a_sample(&mut run);
        let mut nanoseconds = Histogram::<u64>::new(3).expect("three digits are supported");
        for _ in 0..SAMPLES {
            let each = run(rounds).as_nanos() / u128::from(rounds);
            let each = u64::try_from(each).unwrap_or(u64::MAX);
            nanoseconds.record(each).expect("a histogram without an upper bound grows");
        }
        let quartile = |q| Duration::from_nanos(nanoseconds.value_at_quantile(q));
        let rate = elements as f64 / quartile(0.5).as_secs_f64().max(f64::MIN_POSITIVE);
        println!(
            "{part:<64} {:>10.2?} {:>10.2?} {:>10.2?} {rate:>14.0}/s",
            quartile(0.25),
            quartile(0.5),
            quartile(0.75)
        );
    }
}

/// Warms up, and returns how many rounds take about as long as one sample, including their preparation.
fn rounds_a_sample(run: &mut impl FnMut(u64) -> Duration) -> u64 {
    let begun = Instant::now();
    let mut rounds = 1;
    loop {
        let started = Instant::now();
        run(rounds);
        let took = started.elapsed();
        if begun.elapsed() >= WARM_UP {
            let fitting = rounds as f64 * SAMPLE.as_secs_f64() / took.as_secs_f64().max(f64::MIN_POSITIVE);
            return (fitting as u64).clamp(1, ROUNDS_MAX);
        }
        if took < SAMPLE {
            rounds = (rounds * 2).min(ROUNDS_MAX);
        }
    }
}

/// Calls `work` N times and returns how long that took.
pub(crate) fn repeat<T>(rounds: u64, mut work: impl FnMut() -> T) -> Duration {
    let begun = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(work());
    }
    begun.elapsed()
}
