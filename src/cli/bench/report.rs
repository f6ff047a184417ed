//! What was measured: counts, rates and percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::super::options::BenchOptions;
use crate::limits;

/// What one client, or all of them, saw.
#[derive(Debug)]
pub(super) struct Sample {
    /// Of every finished pair, in microseconds.
    pub(super) latencies: Histogram<u64>,
    /// Requests that failed.
    pub(super) errors: u64,
}

impl Default for Sample {
    fn default() -> Self {
        // Three digits and no upper bound: the arguments are within what the histogram allows.
        let latencies =
            Histogram::new_with_max(limits::BENCH_LATENCY_US_MAX, 3).expect("bounds that a histogram can have");
        Self { latencies, errors: 0 }
    }
}

impl Sample {
    /// A pair was finished.
    pub(super) fn took(&mut self, duration: Duration) {
        self.latencies.saturating_record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Joins another client's.
    pub(super) fn add(&mut self, other: &Sample) {
        if let Err(error) = self.latencies.add(&other.latencies) {
            tracing::warn!(%error, "latencies could not be added up");
        }
        self.errors += other.errors;
    }
}

/// The figures of a run. Latencies are those of an acquire with its release.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    workload: &'static str,
    clients: u32,
    elapsed_ms: u64,
    pairs: u64,
    pairs_per_second: u64,
    p50_ms: u64,
    p99_ms: u64,
    max_ms: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    errors: u64,
}

impl Report {
    pub(super) fn new(options: &BenchOptions, sample: &Sample, elapsed: Duration) -> Self {
        let latencies = &sample.latencies;
        let [p50_us, p99_us] = [50.0, 99.0].map(|percent| latencies.value_at_percentile(percent));
        let max_us = latencies.max();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Self {
            workload: options.workload.name(),
            clients: options.clients,
            elapsed_ms,
            pairs: latencies.len(),
            pairs_per_second: latencies.len().saturating_mul(1000) / elapsed_ms.max(1),
            p50_ms: p50_us / 1000,
            p99_ms: p99_us / 1000,
            max_ms: max_us / 1000,
            p50_us,
            p99_us,
            max_us,
            errors: sample.errors,
        }
    }

    pub(super) fn heading(&self) -> [&'static str; 8] {
        ["WORKLOAD", "CLIENTS", "PAIRS", "PAIRS/S", "P50 MS", "P99 MS", "MAX MS", "ERRORS"]
    }

    pub(super) fn row(&self) -> Vec<String> {
        let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
        vec![
            self.workload.to_owned(),
            self.clients.to_string(),
            self.pairs.to_string(),
            self.pairs_per_second.to_string(),
            ms(self.p50_us),
            ms(self.p99_us),
            ms(self.max_us),
            self.errors.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;

    /// Samples of several clients add up, and the rate is counted over the time that really passed.
    #[test]
    fn samples_add_up_to_a_report() {
        let mut all = Sample::default();
        for ms in [1, 2, 30] {
            let mut one = Sample { errors: 1, ..Sample::default() };
            one.took(Duration::from_millis(ms));
            all.add(&one);
        }
        let options = BenchOptions { clients: 3, secs: 1, workload: Workload::Handoff };
        let report = Report::new(&options, &all, Duration::from_millis(1500));
        assert_eq!((report.pairs, report.pairs_per_second, report.errors), (3, 2, 3));
        assert_eq!((report.p50_ms, report.max_ms), (2, 30));
        assert_eq!(report.row()[4], "2.00");
    }
}
