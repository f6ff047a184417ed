//! Metrics of a node. All handles are kept, so that counting needs no search by name.

mod events;
mod namespaces;
mod peers;
mod reasons;
mod refusals;
pub(super) mod sampler;

use metrics::{Counter, Gauge, Histogram};

use self::events::EventMetrics;
use self::peers::Peers;
use self::refusals::Refusals;
use crate::config::Config;
use crate::machine::Applied;
use crate::telemetry::Series;

pub(super) struct Metrics {
    events: EventMetrics,
    pub(super) refusals: Refusals,
    pub(super) peers: Peers,
    entries: Counter,
    entry_commands: Histogram,
    pub(super) fsync_seconds: Histogram,
    pub(super) checkpoint_seconds: Histogram,
    pub(super) commit_seconds: Histogram,
    pub(super) snapshots_installed: Counter,
    pub(super) term: Gauge,
    pub(super) leader: Gauge,
    pub(super) has_leader: Gauge,
    applied: Gauge,
    proposals_waiting: Gauge,
    uncounted_seconds: Gauge,
    uncounted_last_hour: Gauge,
    leader_changes_last_hour: Gauge,
    wal_bytes: Gauge,
    snapshot_bytes: Gauge,
    mirror_bytes: Gauge,
    history_bytes: Gauge,
    free_bytes: Gauge,
    tasks: Gauge,
    deadlock_checks_skipped: Counter,
}

impl Metrics {
    pub(super) fn new(config: &Config) -> Self {
        let series = Series::new(config.node);
        let counter = |name, help| series.counter(name, help, &[]);
        let gauge = |name, help| series.gauge(name, help, &[]);
        let histogram = |name, help| series.histogram(name, help, &[]);
        let build = [("version", env!("CARGO_PKG_VERSION")), ("cluster", config.cluster.as_str())];
        series.gauge("lockkeeper_build_info", "Version and cluster of the node; always 1", &build).set(1.0);
        let free_bytes = gauge("lockkeeper_data_free_bytes", "Free space of the file system with the data directory");
        // Until it is measured, and always for a node in memory, the free space is unknown: 0 would be a full disk.
        free_bytes.set(f64::NAN);
        Self {
            events: EventMetrics::new(&series, &config.metrics),
            refusals: Refusals::new(&series),
            entries: counter("lockkeeper_raft_entries_applied_total", "Log entries that this node has applied"),
            entry_commands: histogram("lockkeeper_raft_entry_commands", "Commands and renewals in one log entry"),
            fsync_seconds: histogram(
                "lockkeeper_wal_fsync_duration_seconds",
                "Time from the write of a log entry on this node until it is durable",
            ),
            checkpoint_seconds: histogram(
                "lockkeeper_checkpoint_duration_seconds",
                "Time in which this node wrote the changes of its state to its mirror",
            ),
            commit_seconds: histogram(
                "lockkeeper_raft_commit_duration_seconds",
                "Time from the proposal of an entry on this leader until it is applied or has failed",
            ),
            snapshots_installed: counter(
                "lockkeeper_raft_snapshots_installed_total",
                "How often this node replaced its state by a snapshot of the leader",
            ),
            term: gauge("lockkeeper_raft_term", "Newest Raft term that this node knows"),
            leader: gauge("lockkeeper_raft_is_leader", "1 while this node leads, otherwise 0"),
            has_leader: gauge("lockkeeper_raft_has_leader", "1 while this node knows a leader, otherwise 0"),
            applied: gauge("lockkeeper_raft_applied_index", "Newest log index that this node has applied"),
            proposals_waiting: gauge(
                "lockkeeper_raft_proposals_waiting",
                "Commands and renewals that wait on this leader for the next log entry",
            ),
            uncounted_seconds: gauge(
                "lockkeeper_log_time_uncounted_seconds_total",
                "Real time, in seconds, that did not become log time on this leader although a deadline existed",
            ),
            uncounted_last_hour: gauge(
                "lockkeeper_log_time_uncounted_last_hour_seconds",
                "Real time of the last hour, in seconds, that did not become log time while this node led",
            ),
            leader_changes_last_hour: gauge(
                "lockkeeper_raft_leader_changes_last_hour",
                "How often a new leader began to serve within the last hour",
            ),
            wal_bytes: gauge("lockkeeper_wal_size_bytes", "Size of the log files"),
            snapshot_bytes: gauge("lockkeeper_snapshot_size_bytes", "Size of the newest snapshot file"),
            mirror_bytes: gauge("lockkeeper_mirror_size_bytes", "Size of the files of the mirror"),
            history_bytes: gauge("lockkeeper_history_size_bytes", "Size of the history of all namespaces, in memory"),
            free_bytes,
            tasks: gauge("lockkeeper_runtime_tasks", "Tasks that run for this node"),
            deadlock_checks_skipped: counter(
                "lockkeeper_deadlock_checks_skipped_total",
                "Owners that were not checked for a deadlock, because the checks of their log entry took too many steps",
            ),
            peers: Peers::new(series),
        }
    }

    /// Counts an applied entry and its events.
    pub(super) fn applied(&self, applied: &Applied) {
        self.entries.increment(1);
        self.entry_commands.record((applied.commands.len() + applied.renewals.len()) as f64);
        self.events.count(&applied.events, &applied.handed_over);
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests;
