//! The figures of each workload: counts, rates and percentiles.

use std::time::Duration;

use serde::Serialize;

use super::checks::Outage;
use super::counters::{Latencies, Sample};
use super::options::BenchOptions;
use super::usage::Usage;
use crate::cli::text::ms;
use crate::clock::{Instant, micros};

/// A cell of a table under its heading.
pub(super) type Cell = (&'static str, String);

fn unknown(value: Option<impl ToString>) -> String {
    value.map_or("?".to_owned(), |value| value.to_string())
}

/// Figures of pairs. A latency is that of an acquire with its release, from the time at which the pair was due.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PairFigures {
    in_flight: u32,
    /// Requested rate, in pairs per second; null in a closed loop.
    rate: Option<u32>,
    pub(super) pairs: u64,
    pairs_per_second: u64,
    p50_ms: u64,
    p99_ms: u64,
    max_ms: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
    acquire_p50_us: u64,
    acquire_p99_us: u64,
    /// Pairs that the end of the run interrupted.
    unfinished: u64,
    /// Pairs that were due at the rate and never begun, because all clients were busy.
    pub(super) never_begun: u64,
    /// CPU time of all nodes per pair, in microseconds; null unless all of them run here.
    server_cpu_us_a_pair: Option<u64>,
}

impl PairFigures {
    pub(super) fn new(
        options: &BenchOptions,
        sample: &Sample,
        never_begun: u64,
        length: Duration,
        usage: &Usage,
    ) -> Self {
        let (pairs, acquires) = (&sample.pairs, &sample.acquires);
        let [p50_us, p90_us, p99_us, p999_us] = [50.0, 90.0, 99.0, 99.9].map(|percent| pairs.us(percent));
        let max_us = pairs.max_us();
        Self {
            in_flight: options.in_flight,
            rate: options.rate,
            pairs: sample.in_time,
            pairs_per_second: a_second(sample.in_time, length),
            p50_ms: p50_us / 1000,
            p99_ms: p99_us / 1000,
            max_ms: max_us / 1000,
            p50_us,
            p90_us,
            p99_us,
            p999_us,
            max_us,
            acquire_p50_us: acquires.us(50.0),
            acquire_p99_us: acquires.us(99.0),
            unfinished: sample.unfinished,
            never_begun,
            server_cpu_us_a_pair: usage.server_cpu_ms.map(|cpu| cpu.saturating_mul(1000) / sample.in_time.max(1)),
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("PAIRS", self.pairs.to_string()),
            ("PAIRS/S", self.pairs_per_second.to_string()),
            ("P50 MS", ms(self.p50_us)),
            ("P90 MS", ms(self.p90_us)),
            ("P99 MS", ms(self.p99_us)),
            ("P99.9 MS", ms(self.p999_us)),
            ("MAX MS", ms(self.max_us)),
            ("CPU US A PAIR", unknown(self.server_cpu_us_a_pair)),
        ]
    }
}

/// Returns how many that is a second.
pub(super) fn a_second(count: u64, length: Duration) -> u64 {
    count.saturating_mul(1_000_000) / micros(length).max(1)
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct HandoffFigures {
    /// Grants to another client than the previous one.
    handoffs: u64,
    handoffs_per_second: u64,
    /// Median time from the call of a release to the next grant.
    gap_p50_us: u64,
    gap_p99_us: u64,
    /// Log entries for each hand-over; null if no node reported them.
    entries_a_handoff: Option<f64>,
    pub(super) violations: u64,
}

impl HandoffFigures {
    pub(super) fn new(sample: &Sample, length: Duration, usage: &Usage) -> Self {
        let entries = usage.log_entries.map(|entries| entries as f64 / sample.handoffs.max(1) as f64);
        Self {
            entries_a_handoff: entries.map(|entries| (entries * 100.0).round() / 100.0),
            handoffs: sample.handoffs,
            handoffs_per_second: a_second(sample.handoffs, length),
            gap_p50_us: sample.gaps.us(50.0),
            gap_p99_us: sample.gaps.us(99.0),
            violations: sample.violations,
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("HANDOFFS/S", self.handoffs_per_second.to_string()),
            ("GAP P50 MS", ms(self.gap_p50_us)),
            ("GAP P99 MS", ms(self.gap_p99_us)),
        ]
    }
}

/// Queues that were filled and drained.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DrainFigures {
    pub(super) rounds: u64,
    /// Time in which all clients join the queue, the average of all rounds.
    queueing_ms: u64,
    /// Time from the call of the first release to the answer of the last one.
    draining_ms: u64,
    queued_per_second: u64,
    drained_per_second: u64,
    /// Median time from one grant to the next.
    gap_p50_us: u64,
    gap_p99_us: u64,
    gap_max_us: u64,
    /// Grants to a client whose place in the queue was after that of a client that was granted later.
    pub(super) out_of_order: u64,
    /// CPU time of all nodes for each waiter, in microseconds; null unless all of them run here.
    queueing_cpu_us_a_waiter: Option<u64>,
    draining_cpu_us_a_waiter: Option<u64>,
}

impl DrainFigures {
    pub(super) fn new(
        waiters: u64,
        rounds: u64,
        (queueing, draining): (Duration, Duration),
        gaps: &Latencies,
        out_of_order: u64,
        cpu_ms: [Option<u64>; 2],
    ) -> Self {
        let all = (waiters * rounds).max(1);
        let [queueing_cpu, draining_cpu] = cpu_ms.map(|cpu_ms| cpu_ms.map(|ms| ms * 1000 / all));
        Self {
            rounds,
            queueing_ms: micros(queueing) / 1000 / rounds.max(1),
            draining_ms: micros(draining) / 1000 / rounds.max(1),
            queued_per_second: a_second(all, queueing),
            drained_per_second: a_second(all, draining),
            gap_p50_us: gaps.us(50.0),
            gap_p99_us: gaps.us(99.0),
            gap_max_us: gaps.max_us(),
            out_of_order,
            queueing_cpu_us_a_waiter: queueing_cpu,
            draining_cpu_us_a_waiter: draining_cpu,
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("ROUNDS", self.rounds.to_string()),
            ("QUEUED/S", self.queued_per_second.to_string()),
            ("DRAINED/S", self.drained_per_second.to_string()),
            ("DRAIN MS", self.draining_ms.to_string()),
            ("GAP P50 MS", ms(self.gap_p50_us)),
            ("GAP P99 MS", ms(self.gap_p99_us)),
            ("CPU US A WAITER", unknown(self.draining_cpu_us_a_waiter)),
        ]
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct SessionFigures {
    pub(super) ttl_ms: u64,
    pub(super) opened_per_second: u64,
    pub(super) closed_per_second: u64,
    /// Memory of all nodes together for each session; null unless all of them run here.
    pub(super) memory_a_session_bytes: Option<i64>,
}

impl SessionFigures {
    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("TTL MS", self.ttl_ms.to_string()),
            ("OPENED/S", self.opened_per_second.to_string()),
            ("CLOSED/S", self.closed_per_second.to_string()),
            ("BYTES A SESSION", unknown(self.memory_a_session_bytes)),
        ]
    }
}

/// Figures of locks that were taken and kept.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HeldFigures {
    pub(super) held: u32,
    pub(super) taken_per_second: u64,
    pub(super) take_p50_us: u64,
    pub(super) take_p99_us: u64,
    /// Memory of all nodes together for each lock; null unless all of them run here.
    pub(super) memory_a_lock_bytes: Option<i64>,
    /// Locks released per second, by closing the sessions that held them.
    #[serde(rename = "let_go_per_second")]
    pub(super) released_per_second: u64,
}

impl HeldFigures {
    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("HELD", self.held.to_string()),
            ("TAKEN/S", self.taken_per_second.to_string()),
            ("TAKE P50 MS", ms(self.take_p50_us)),
            ("TAKE P99 MS", ms(self.take_p99_us)),
            ("RELEASED/S", self.released_per_second.to_string()),
            ("BYTES A LOCK", unknown(self.memory_a_lock_bytes)),
        ]
    }
}

/// Figures of clients that use their own locks again and again, with cached holds and without.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AffinityFigures {
    pub(super) foreign_percent: u32,
    pub(super) cached: UseFigures,
    pub(super) uncached: UseFigures,
    /// The rate with cached holds divided by the rate without.
    pub(super) cached_by_uncached: f64,
    /// Uses of a lock while another client used it.
    pub(super) violations: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct UseFigures {
    pub(super) uses: u64,
    pub(super) uses_per_second: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    /// Number of entries that were added to the log meanwhile; null if no node reported it.
    log_entries: Option<u64>,
}

impl UseFigures {
    pub(super) fn new(uses: u64, latencies: &Latencies, length: Duration, log_entries: Option<u64>) -> Self {
        let [p50_us, p99_us] = [50.0, 99.0].map(|percent| latencies.us(percent));
        let uses_per_second = a_second(uses, length);
        Self { uses, uses_per_second, p50_us, p99_us, max_us: latencies.max_us(), log_entries }
    }

    fn row(&self, holds: &str) -> Vec<String> {
        let counts = [self.uses, self.uses_per_second].map(|count| count.to_string());
        let times = [self.p50_us, self.p99_us, self.max_us].map(ms);
        let entries = unknown(self.log_entries);
        std::iter::once(holds.to_owned()).chain(counts).chain(times).chain([entries]).collect()
    }
}

impl AffinityFigures {
    pub(super) const HEADING: [&str; 7] = ["HOLDS", "USES", "USES/S", "P50 MS", "P99 MS", "MAX MS", "LOG ENTRIES"];

    pub(super) fn new(foreign_percent: u32, [cached, uncached]: [UseFigures; 2], violations: u64) -> Self {
        let times = cached.uses_per_second as f64 / uncached.uses_per_second.max(1) as f64;
        let cached_by_uncached = (times * 100.0).round() / 100.0;
        Self { foreign_percent, cached, uncached, cached_by_uncached, violations }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![
            ("FOREIGN %", self.foreign_percent.to_string()),
            ("CACHED / UNCACHED", format!("{:.2}", self.cached_by_uncached)),
        ]
    }

    pub(super) fn rows(&self) -> [Vec<String>; 2] {
        [self.cached.row("cached"), self.uncached.row("uncached")]
    }
}

/// Figures of outages: times in which no client was served.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FailoverFigures {
    /// The shortest time that counts as an outage.
    gap_ms: u64,
    outages: u64,
    longest_ms: u64,
    /// The longest outages, in order of time.
    pub(super) listed: Vec<OutageFigures>,
}

impl FailoverFigures {
    pub(super) fn new(least: Duration, outages: &[Outage], counts_from: Instant, named: usize) -> Self {
        let mut longest: Vec<_> = outages.iter().collect();
        longest.sort_by_key(|outage| std::cmp::Reverse(outage.again[0]));
        let longest_ms = longest.first().map_or(0, |outage| micros(outage.again[0]) / 1000);
        longest.truncate(named);
        longest.sort_by_key(|outage| outage.from);
        let listed = longest.into_iter().map(|outage| OutageFigures::new(outage, counts_from)).collect();
        Self { gap_ms: micros(least) / 1000, outages: outages.len() as u64, longest_ms, listed }
    }

    /// Number of outages that are not listed.
    pub(super) fn unlisted(&self) -> u64 {
        self.outages - self.listed.len() as u64
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        vec![("OUTAGES", self.outages.to_string()), ("LONGEST MS", self.longest_ms.to_string())]
    }
}

/// One outage. Its durations count from the last answer before it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OutageFigures {
    /// When the outage began, counted from the end of the warm-up.
    at_ms: u64,
    first_served_ms: u64,
    half_served_ms: u64,
    all_served_ms: u64,
}

impl OutageFigures {
    fn new(outage: &Outage, counts_from: Instant) -> Self {
        let [first, half, all] = outage.again.map(|again| micros(again) / 1000);
        let at_ms = micros(outage.from.since(counts_from)) / 1000;
        Self { at_ms, first_served_ms: first, half_served_ms: half, all_served_ms: all }
    }

    pub(super) fn row(&self) -> Vec<String> {
        let at = format!("{}.{:03}", self.at_ms / 1000, self.at_ms % 1000);
        let served = [self.first_served_ms, self.half_served_ms, self.all_served_ms];
        std::iter::once(at).chain(served.iter().map(u64::to_string)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures are averages over the measured time, and are rounded down.
    #[test]
    fn drained_queues_add_up() {
        let mut gaps = Latencies::default();
        [1, 2, 30].into_iter().for_each(|ms| gaps.record(Duration::from_millis(ms)));
        let times = (Duration::from_secs(2), Duration::from_millis(500));
        let figures = DrainFigures::new(100, 2, times, &gaps, 0, [Some(40), None]);
        assert_eq!((figures.queued_per_second, figures.drained_per_second), (100, 400));
        assert_eq!((figures.queueing_ms, figures.draining_ms), (1_000, 250));
        assert_eq!((figures.gap_p50_us / 1000, figures.gap_max_us / 1000), (2, 30));
        assert_eq!((figures.queueing_cpu_us_a_waiter, figures.draining_cpu_us_a_waiter), (Some(200), None));
        assert_eq!(ms(2_345), "2.34");
    }

    /// Outages are counted from the end of the warm-up. The longest are listed, and the others only counted.
    #[test]
    fn outages_are_counted_from_the_end_of_the_warm_up() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let outage =
            |from, first| Outage { from: at(from), again: [first, first + 1, first + 2].map(Duration::from_millis) };
        let outages = [outage(500, 100), outage(3_250, 400)];
        let figures = FailoverFigures::new(Duration::from_millis(100), &outages, at(1_000), 1);
        assert_eq!((figures.outages, figures.longest_ms, figures.unlisted()), (2, 400, 1));
        assert_eq!(figures.listed[0].first_served_ms, 400, "the longest");
        assert_eq!(OutageFigures::new(&outages[1], at(1_000)).row(), ["2.250", "400", "401", "402"]);
    }
}
