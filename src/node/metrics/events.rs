//! What is counted from applied events. Every node applies the same events, so these counters grow alike on all nodes.

use std::collections::VecDeque;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::namespaces::{NamespaceSeries, Namespaces};
use super::reasons::{self, Ended, GRANTED};
use crate::clock::Instant;
use crate::config::{LockClass, MetricsLabels};
use crate::limits;
use crate::model::{EndReason, Event, EventKind, Subject, WallTime};
use crate::mutex::Mutex;
use crate::telemetry::{OTHER, Series};

pub(super) struct EventMetrics {
    sessions_opened: Counter,
    sessions_ended: Ended,
    leader_changes: Counter,
    /// When the leader changed, and when a sample of this node first counted it. The newest change comes first.
    newest_leader_changes: Mutex<VecDeque<(WallTime, Option<Instant>)>>,
    leaderless_seconds: Gauge,
    classes: Classes,
    pub(super) namespaces: Mutex<Namespaces>,
}

impl EventMetrics {
    pub(super) fn new(series: &Series, labels: &MetricsLabels) -> Self {
        let counter = |name, help| series.counter(name, help, &[]);
        Self {
            sessions_opened: counter("lockkeeper_sessions_opened_total", "Sessions that were opened"),
            sessions_ended: Ended::sessions(series),
            leader_changes: counter("lockkeeper_raft_leader_changes_total", "How often a new leader began to serve"),
            newest_leader_changes: Mutex::default(),
            leaderless_seconds: series.gauge(
                "lockkeeper_leaderless_seconds_total",
                "Time without a leader, in seconds, as each new leader observed it",
                &[],
            ),
            classes: Classes::new(series, &labels.classes),
            namespaces: Mutex::new(Namespaces::new(series.clone(), &labels.namespaces)),
        }
    }

    /// Returns how often a new leader began to serve within the last hour. A node that catches up applies older
    /// changes, too. Only their wall time shows their age, because log time stands still in an idle cluster. A leader
    /// whose wall clock is ahead writes times that seem new for too long, so no change counts for more than an hour
    /// after its first sample.
    pub(super) fn leader_changes_last_hour(&self, wall: WallTime, now: Instant) -> usize {
        let hour = Duration::from_millis(limits::METRICS_HOUR_MS);
        let mut changes = self.newest_leader_changes.lock();
        let is_new = changes.iter_mut().map(|(at, sampled)| {
            let sampled = *sampled.get_or_insert(now);
            now.since(sampled) <= hour && wall.0.saturating_sub(at.0) <= limits::METRICS_HOUR_MS
        });
        is_new.filter(|is_new| *is_new).count()
    }

    /// Counts these events. The waits that their hand-overs ended are those of
    /// [`Applied::handed_over`](crate::machine::Applied::handed_over).
    pub(super) fn count(&self, events: &[Event], waits: &[Option<u64>]) {
        if events.is_empty() {
            return;
        }
        let (mut namespaces, mut waits) = (self.namespaces.lock(), waits.iter().copied());
        for event in events {
            match (&event.kind, &event.namespace) {
                (EventKind::SessionOpened, _) => self.sessions_opened.increment(1),
                (EventKind::SessionEnded { reason, .. }, _) => self.sessions_ended.count(reasons::of_end(*reason)),
                (EventKind::LeaderlessGap { gap_ms }, _) => {
                    self.leader_changes.increment(1);
                    self.leaderless_seconds.increment(*gap_ms as f64 / 1e3);
                    let mut newest = self.newest_leader_changes.lock();
                    newest.truncate(limits::METRICS_LEADER_CHANGES_MAX - 1);
                    newest.push_front((event.wall, None));
                }
                (kind, Some(namespace)) => {
                    let (series, class) = (namespaces.of(namespace), self.classes.of(&event.subject));
                    if let EventKind::HandedOver { .. } = kind {
                        handed_over(waits.next().flatten(), series, class);
                    } else {
                        count(kind, series, class);
                    }
                }
                (_, None) => {}
            }
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the other events are not counted")]
fn count(kind: &EventKind, of: &NamespaceSeries, class: &ClassSeries) {
    let (reason, held_ms) = match kind {
        EventKind::Queued { .. } => return of.waits.increment(1),
        EventKind::Granted { waited_ms, .. } => {
            of.grants.increment(1);
            return waited(*waited_ms, of, class);
        }
        EventKind::Upgraded { waited_ms, .. } => return waited(*waited_ms, of, class),
        EventKind::WaitEnded { why, .. } => return of.waits_ended.count(reasons::of_wait(*why)),
        EventKind::Released { held_ms } => (EndReason::Released, held_ms),
        EventKind::Expired { reason, held_ms } => (*reason, held_ms),
        EventKind::Broken { held_ms, .. } => (EndReason::Broken, held_ms),
        _ => return,
    };
    of.holds_ended.count(reasons::of_end(reason));
    class.hold.record(*held_ms as f64 / 1e3);
}

/// Counts a hand-over. Its event does not say how long the successor has waited.
fn handed_over(waited_ms: Option<u64>, of: &NamespaceSeries, class: &ClassSeries) {
    if let Some(ms) = waited_ms {
        class.wait.record(ms as f64 / 1e3);
        of.waits_ended.count(GRANTED);
    }
    of.holds_ended.count(reasons::of_end(EndReason::HandedOver));
}

/// Records how long a granted request has waited. The event does not say whether a request that waited for less than a
/// millisecond was in the queue.
fn waited(ms: u64, of: &NamespaceSeries, class: &ClassSeries) {
    class.wait.record(ms as f64 / 1e3);
    if 0 < ms {
        of.waits_ended.count(GRANTED);
    }
}

/// The histograms of the classes of locks.
struct Classes {
    /// Prefixes with their histograms. The first one that fits is used.
    listed: Vec<(String, ClassSeries)>,
    other: ClassSeries,
}

struct ClassSeries {
    wait: Histogram,
    hold: Histogram,
}

impl ClassSeries {
    fn new(series: &Series, class: &str) -> Self {
        let histogram = |name, help| series.histogram(name, help, &[("class", class)]);
        Self {
            wait: histogram(
                "lockkeeper_wait_duration_seconds",
                "How long granted requests had waited, in log time, by class",
            ),
            hold: histogram(
                "lockkeeper_hold_duration_seconds",
                "How long ended holds had lasted, in log time, by class",
            ),
        }
    }
}

impl Classes {
    fn new(series: &Series, classes: &[LockClass]) -> Self {
        let listed = classes.iter().map(|class| (class.prefix.clone(), ClassSeries::new(series, &class.name)));
        Self { listed: listed.collect(), other: ClassSeries::new(series, OTHER) }
    }

    fn of(&self, subject: &Subject) -> &ClassSeries {
        let Some(lock) = subject.lock().filter(|_| !self.listed.is_empty()) else { return &self.other };
        let fits = |(prefix, _): &&(String, ClassSeries)| lock.name.as_str().starts_with(prefix);
        self.listed.iter().find(fits).map_or(&self.other, |(_, class)| class)
    }
}
