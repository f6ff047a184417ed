//! Metrics of a node. Without a recorder they cost next to nothing.

use metrics::{Counter, Gauge, Histogram};

use crate::machine::Applied;
use crate::model::{EventKind, Totals, WaitEndReason};

/// The metrics of one node, labelled with its id because several nodes may run in one process.
pub(super) struct Metrics {
    grants: Counter,
    releases: Counter,
    expiries: Counter,
    waits: Counter,
    timeouts: Counter,
    sessions_opened: Counter,
    sessions_ended: Counter,
    leader_changes: Counter,
    wait_seconds: Histogram,
    hold_seconds: Histogram,
    entries: Counter,
    commands_an_entry: Histogram,
    pub(super) fsync_seconds: Histogram,
    pub(super) commit_seconds: Histogram,
    pub(super) term: Gauge,
    pub(super) leader: Gauge,
    pub(super) applied: Gauge,
    pub(super) log_time_lag_seconds: Gauge,
    pub(super) wal_bytes: Gauge,
    pub(super) snapshot_bytes: Gauge,
    pub(super) tasks: Gauge,
    sessions: Gauge,
    locks: Gauge,
    holders: Gauge,
    /// Deadlock checks that were skipped.
    pub(super) deadlock_checks_skipped: Counter,
    waiters: Gauge,
}

impl Metrics {
    pub(super) fn new(node: u64) -> Self {
        let node = node.to_string();
        let counter = |name: &'static str, help: &'static str| {
            metrics::describe_counter!(name, help);
            metrics::counter!(name, "node" => node.clone())
        };
        let gauge = |name: &'static str, help: &'static str| {
            metrics::describe_gauge!(name, help);
            metrics::gauge!(name, "node" => node.clone())
        };
        let histogram = |name: &'static str, help: &'static str| {
            metrics::describe_histogram!(name, help);
            metrics::histogram!(name, "node" => node.clone())
        };
        Self {
            grants: counter("lockkeeper_grants_total", "Grants of locks and permits, to sessions and as token leases"),
            releases: counter("lockkeeper_releases_total", "Holds that their holders gave back"),
            expiries: counter("lockkeeper_expiries_total", "Holds that ran out or were broken"),
            waits: counter("lockkeeper_waits_total", "Requests that had to join a queue"),
            timeouts: counter(
                "lockkeeper_wait_timeouts_total",
                "Requests that left a queue because their time was over",
            ),
            sessions_opened: counter("lockkeeper_sessions_opened_total", "Sessions that were opened"),
            sessions_ended: counter("lockkeeper_sessions_ended_total", "Sessions that ended, for any reason"),
            leader_changes: counter("lockkeeper_leader_changes_total", "How often a new leader began to serve"),
            wait_seconds: histogram("lockkeeper_wait_seconds", "How long granted requests had waited, in log time"),
            hold_seconds: histogram("lockkeeper_hold_seconds", "How long ended holds had lasted, in log time"),
            entries: counter("lockkeeper_entries_applied_total", "Log entries that this node has applied"),
            commands_an_entry: histogram("lockkeeper_commands_an_entry", "Commands and renewals in one log entry"),
            fsync_seconds: histogram(
                "lockkeeper_fsync_seconds",
                "From the write of a log entry on this node until it is durable",
            ),
            commit_seconds: histogram(
                "lockkeeper_commit_seconds",
                "From the proposal of an entry on this leader until it is applied or has failed",
            ),
            term: gauge("lockkeeper_term", "Raft term that this node knows"),
            leader: gauge("lockkeeper_is_leader", "1 while this node leads, otherwise 0"),
            applied: gauge("lockkeeper_applied_index", "Newest log index that this node has applied"),
            log_time_lag_seconds: gauge(
                "lockkeeper_log_time_uncounted_seconds",
                "Real time of the last minute that did not become log time although a deadline ran",
            ),
            wal_bytes: gauge("lockkeeper_wal_bytes", "Size of the log files"),
            snapshot_bytes: gauge("lockkeeper_snapshot_bytes", "Size of the newest snapshot file"),
            tasks: gauge("lockkeeper_tasks", "Tasks that run for this node"),
            sessions: gauge("lockkeeper_sessions", "Open sessions"),
            locks: gauge("lockkeeper_locks", "Locks in use"),
            deadlock_checks_skipped: counter(
                "lockkeeper_deadlock_checks_skipped_total",
                "Owners that were not checked for a deadlock, because the checks of their log entry took too many steps",
            ),
            holders: gauge("lockkeeper_holders", "Holders of all locks"),
            waiters: gauge("lockkeeper_waiters", "Requests in all queues"),
        }
    }

    /// Counts an applied entry and its events.
    pub(super) fn applied(&self, applied: &Applied) {
        self.entries.increment(1);
        self.commands_an_entry.record((applied.commands.len() + applied.renewals.len()) as f64);
        for event in &*applied.events {
            self.on_event(&event.kind);
        }
    }

    fn on_event(&self, kind: &EventKind) {
        match kind {
            EventKind::Queued { .. } => self.waits.increment(1),
            EventKind::Granted { waited_ms, .. } => {
                self.grants.increment(1);
                self.wait_seconds.record(*waited_ms as f64 / 1e3);
            }
            EventKind::WaitEnded { why: WaitEndReason::TimedOut, .. } => self.timeouts.increment(1),
            EventKind::WaitEnded {
                why:
                    WaitEndReason::Withdrawn
                    | WaitEndReason::SessionEnded
                    | WaitEndReason::HoldEnded
                    | WaitEndReason::Impossible
                    | WaitEndReason::Deadlock,
                ..
            }
            | EventKind::Upgraded { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::HandedOver { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::Reopened => {}
            EventKind::Released { held_ms, .. } => {
                self.releases.increment(1);
                self.hold_seconds.record(*held_ms as f64 / 1e3);
            }
            EventKind::Expired { held_ms, .. } | EventKind::Broken { held_ms, .. } => {
                self.expiries.increment(1);
                self.hold_seconds.record(*held_ms as f64 / 1e3);
            }
            EventKind::SessionOpened => self.sessions_opened.increment(1),
            EventKind::SessionEnded { .. } => self.sessions_ended.increment(1),
            EventKind::LeaderlessGap { .. } => self.leader_changes.increment(1),
        }
    }

    /// Records that this node leads in a new term.
    pub(super) fn leads(&self, term: u64) {
        self.term.set(term as f64);
        self.leader.set(1.0);
    }

    /// Records the sizes of the state.
    pub(super) fn sizes(&self, totals: Totals) {
        self.sessions.set(totals.sessions as f64);
        self.locks.set(totals.locks as f64);
        self.holders.set(totals.holders as f64);
        self.waiters.set(totals.waiters as f64);
    }
}
