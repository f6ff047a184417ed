//! The series of each namespace, of which only a limited number have their own.

use std::collections::{BTreeMap, BTreeSet};

use metrics::{Counter, Gauge};

use super::reasons::Ended;
use crate::limits;
use crate::machine::NamespaceSizes;
use crate::model::Namespace;
use crate::telemetry::{OTHER, Series};

/// The quotas of a namespace that are measured, as the label `quota`, in the order of [`NamespaceSizes::used`].
const QUOTAS: [&str; 4] = ["sessions", "locks", "takes", "waiters"];

/// The metrics of one namespace, or of all that share their series.
pub(super) struct NamespaceSeries {
    pub(super) grants: Counter,
    pub(super) waits: Counter,
    pub(super) holds_ended: Ended,
    pub(super) waits_ended: Ended,
    /// Sessions, locks, holders and waiters, in the order in which `record` sets them.
    sizes: [Gauge; 4],
    /// In the order of `QUOTAS`.
    quotas: [Gauge; QUOTAS.len()],
    longest_wait: Gauge,
}

impl NamespaceSeries {
    fn new(series: &Series, namespace: &str) -> Self {
        let labels = [("namespace", namespace)];
        let gauge = |name, help| series.gauge(name, help, &labels);
        let quota = |quota| {
            let labels = [("namespace", namespace), ("quota", quota)];
            series.gauge("lockkeeper_quota_used_ratio", "Used share of a quota of a namespace, 0 to 1", &labels)
        };
        Self {
            grants: series.counter("lockkeeper_grants_total", "Grants of locks and permits, by namespace", &labels),
            waits: series.counter("lockkeeper_waits_total", "Requests that joined a queue, by namespace", &labels),
            holds_ended: Ended::holds(series, namespace),
            waits_ended: Ended::waits(series, namespace),
            sizes: [
                gauge("lockkeeper_sessions", "Open sessions, by namespace"),
                gauge("lockkeeper_locks", "Locks in use, by namespace"),
                gauge("lockkeeper_holders", "Holders of all locks, by namespace"),
                gauge("lockkeeper_waiters", "Requests in all queues, by namespace"),
            ],
            quotas: QUOTAS.map(quota),
            longest_wait: gauge(
                "lockkeeper_longest_wait_seconds",
                "Longest wait of a request that waits now, in log time, by namespace; measured by the leader only",
            ),
        }
    }
}

/// The series of all namespaces.
pub(super) struct Namespaces {
    series: Series,
    /// The namespaces with their own series; empty for the first ones that are seen.
    listed: BTreeSet<Namespace>,
    /// The places of known namespaces in `slots`.
    places: BTreeMap<Namespace, usize>,
    /// The series of all other namespaces, then those of the known ones.
    slots: Vec<NamespaceSeries>,
}

impl Namespaces {
    /// Creates the series of the listed namespaces. Without a list, the first ones that are seen get their own series.
    pub(super) fn new(series: Series, listed: &[Namespace]) -> Self {
        let other = NamespaceSeries::new(&series, OTHER);
        let listed: BTreeSet<_> = listed.iter().cloned().collect();
        let mut new = Self { series, listed, places: BTreeMap::new(), slots: vec![other] };
        for namespace in new.listed.clone() {
            new.place(&namespace);
        }
        new
    }

    /// Returns the series of a namespace, or those of all others.
    pub(super) fn of(&mut self, namespace: &Namespace) -> &NamespaceSeries {
        let place = self.place(namespace);
        &self.slots[place]
    }

    /// Returns the place of a namespace in `slots`: 0, the place of all others, if it has no series.
    fn place(&mut self, namespace: &Namespace) -> usize {
        if let Some(place) = self.places.get(namespace) {
            return *place;
        }
        let full = limits::METRICS_NAMESPACES_MAX < self.slots.len();
        // A namespace with this name would have the series of all others.
        let is_other = namespace.as_str() == OTHER;
        if full || is_other || !(self.listed.is_empty() || self.listed.contains(namespace)) {
            return 0;
        }
        let place = self.slots.len();
        self.slots.push(NamespaceSeries::new(&self.series, namespace.as_str()));
        self.places.insert(namespace.clone(), place);
        place
    }

    /// Combines what was measured of some namespaces with the sums at their places in `slots`.
    pub(super) fn add<T: Default>(&mut self, sums: &mut Vec<T>, of: Vec<(Namespace, T)>, add: impl Fn(&mut T, &T)) {
        for (namespace, measured) in of {
            let place = self.place(&namespace);
            sums.resize_with(self.slots.len().max(sums.len()), T::default);
            add(&mut sums[place], &measured);
        }
    }

    /// Records the sizes of all namespaces, by their places. Those that were not added use nothing.
    pub(super) fn record(&self, sizes: &[NamespaceSizes]) {
        for (place, series) in self.slots.iter().enumerate() {
            let sizes = sizes.get(place).copied().unwrap_or_default();
            let counts = [sizes.sessions, sizes.locks, sizes.holders, sizes.waiters];
            series.sizes.iter().zip(counts).for_each(|(gauge, count)| gauge.set(count as f64));
            series.quotas.iter().zip(sizes.used).for_each(|(gauge, used)| gauge.set(used));
        }
    }

    /// Records the longest waits in milliseconds, by the places of their namespaces. Those that were not added have
    /// none.
    pub(super) fn record_waits(&self, longest: &[u64]) {
        for (place, series) in self.slots.iter().enumerate() {
            let ms = longest.get(place).copied().unwrap_or_default();
            series.longest_wait.set(ms as f64 / 1e3);
        }
    }
}
