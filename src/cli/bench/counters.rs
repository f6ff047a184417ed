//! Counters of all clients: latencies, errors, and violations.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::clock::micros;
use crate::limits;

#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // Three digits and no upper bound: the arguments are within what the histogram allows.
        Self(Histogram::new_with_max(limits::BENCH_LATENCY_US_MAX, 3).expect("bounds that a histogram can have"))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, duration: Duration) {
        self.0.saturating_record(micros(duration));
    }

    /// Adds all durations of another histogram.
    pub(super) fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        self.0.add(&other.0).expect("bounds of the same histogram");
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns this percentile in microseconds; 0 if nothing was recorded.
    pub(super) fn us(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    pub(super) fn max_us(&self) -> u64 {
        self.0.max()
    }
}

/// Requests that failed.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Errors {
    /// Number of failed requests.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

impl Errors {
    pub(super) fn count(&mut self, error: &impl std::fmt::Display) {
        tracing::info!(%error, "a request failed");
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Adds other errors, which came later.
    pub(super) fn add(&mut self, later: Self) {
        self.errors += later.errors;
        self.first_error = self.first_error.take().or(later.first_error);
    }
}

/// Counters of all requests after the warm-up.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Time from when a pair was due to the answer of its release.
    pub(super) pairs: Latencies,
    /// Pairs that were answered between the warm-up and the end. Pairs that were answered later have a latency, too.
    pub(super) in_time: u64,
    /// Time from when a pair was due to its grant.
    pub(super) acquires: Latencies,
    /// Time from the call of a release to the next grant of the same lock.
    pub(super) gaps: Latencies,
    /// Grants to another client than the previous one.
    pub(super) handoffs: u64,
    /// Grants while another client held the lock, or whose token was not larger than the previous one.
    pub(super) violations: u64,
    /// Requests that the end of the run interrupted.
    pub(super) unfinished: u64,
    /// Requests that failed, including those of the warm-up.
    pub(super) errors: Errors,
}
