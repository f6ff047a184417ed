//! The figures of a drill: the gaps after faults, and the hand-overs of the exclusive lock.

use serde::Serialize;

use super::contenders::EXCLUSIVE;
use super::journal::{Fault, Hold, Timeline};
use crate::cli::text::ms;

/// Upper ends of the classes of a histogram, in milliseconds. The last class has no end.
pub(super) const CLASSES_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Gap {
    /// The longest time without a grant to any contender.
    pub(super) next_grant_us: u64,
    /// The longest time that one contender waited for a grant.
    pub(super) last_client_us: u64,
    /// When the longest time without a grant began.
    pub(super) from_us: u64,
}

/// Percentiles of durations, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Spread {
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p95_us: u64,
    pub(super) max_us: u64,
}

impl Spread {
    pub(super) fn of(durations_us: &[u64]) -> Self {
        let mut sorted = durations_us.to_vec();
        sorted.sort_unstable();
        // The nearest rank: the smallest duration that this many per cent do not exceed.
        let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(0);
        Self { count: sorted.len() as u64, p50_us: at(50), p95_us: at(95), max_us: at(100) }
    }

    /// The percentiles as texts in milliseconds.
    pub(super) fn texts(self) -> [String; 3] {
        [self.p50_us, self.p95_us, self.max_us].map(ms)
    }
}

/// Returns how many durations are in each class, and in the class above all ends.
pub(super) fn histogram(durations_us: &[u64]) -> [u64; CLASSES_MS.len() + 1] {
    let mut counts = [0; CLASSES_MS.len() + 1];
    for us in durations_us {
        counts[CLASSES_MS.partition_point(|end| end * 1000 <= *us)] += 1;
    }
    counts
}

/// Returns the gap after a fault. Grants that were under way at the fault do not end it: the longest time without a
/// grant counts, from the fault until every contender was granted a request that it sent after the fault.
pub(super) fn gap(timeline: &Timeline, fault: &Fault) -> Gap {
    let next_fault_us = timeline.faults.iter().map(|other| other.at_us).find(|at_us| fault.at_us < *at_us);
    let next_fault_us = next_fault_us.unwrap_or(u64::MAX);
    let mut after = vec![Vec::new(); timeline.contenders];
    for hold in timeline.holds.iter().filter(|hold| fault.at_us < hold.granted_us && hold.granted_us <= next_fault_us) {
        if let Some(own) = after.get_mut(hold.client) {
            own.push(hold);
        }
    }
    let waits: Vec<_> = after.iter().map(|own| waits_of(own, fault, timeline.ended_us)).collect();
    let until = waits.iter().filter_map(|waits| waits.last().map(|(_, to)| *to)).max().unwrap_or(fault.at_us);
    let granted = after.iter().flatten().map(|hold| hold.granted_us);
    let mut granted: Vec<u64> = granted.filter(|granted| *granted <= until).collect();
    granted.sort_unstable();
    let (from_us, next_grant_us) = longest(fault.at_us, &granted);
    let last_client_us = waits.iter().flatten().map(|(from, to)| to - from).max().unwrap_or(0);
    Gap { next_grant_us, last_client_us, from_us }
}

/// Returns from when to when a contender waited: from each request, or from the fault, to the grant, up to the first
/// grant that it requested after the fault. Without such a grant it waited until the end of the drill.
fn waits_of(own: &[&Hold], fault: &Fault, ended_us: u64) -> Vec<(u64, u64)> {
    let served = own.iter().position(|hold| fault.at_us < hold.asked_us);
    let counted = own.iter().take(served.map_or(own.len(), |index| index + 1));
    let waits = counted.map(|hold| (hold.asked_us.max(fault.at_us), hold.granted_us));
    waits.chain(served.is_none().then_some((fault.at_us, ended_us.max(fault.at_us)))).collect()
}

/// The start and the length of the longest time between two of these moments, which are in order, from `at_us` on.
fn longest(at_us: u64, moments: &[u64]) -> (u64, u64) {
    let starts = std::iter::once(&at_us).chain(moments);
    let spans = starts.zip(moments).map(|(from, to)| (*from, to - from));
    spans.max_by_key(|(_, length)| *length).unwrap_or((at_us, 0))
}

/// Returns the time from each release of the exclusive lock to the next grant to another client.
pub(super) fn hand_overs(timeline: &Timeline) -> Vec<u64> {
    let mut holds: Vec<&Hold> = timeline.holds.iter().filter(|hold| hold.lock == EXCLUSIVE).collect();
    holds.sort_by_key(|hold| hold.granted_us);
    let passed = holds.windows(2).filter(|pair| pair[0].client != pair[1].client);
    passed.filter_map(|pair| Some(pair[1].granted_us.saturating_sub(pair[0].ended_us?))).collect()
}
