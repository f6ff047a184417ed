//! The records of a run: the trace, the times until which clients were sure, and what nodes reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::model::{EndReason, Event, EventKind, Position, SessionId};
use lockkeeper::service::ServiceError;
use tokio::sync::Notify;

use crate::checker::{EventLog, History};
use crate::clock::truth;
use crate::injected::InjectedFaults;
use crate::sure::{SessionOrHold, Sure};

pub(crate) const NODES: usize = 3;

/// The host names of nodes, in the order of their ids.
pub(crate) const NODE_HOSTS: [&str; NODES] = ["n1", "n2", "n3"];

/// The state that everything in one run shares.
#[derive(Debug)]
pub(crate) struct Run {
    notes: Mutex<Notes>,
    stopping: AtomicBool,
    /// Notified when [`Notes::reset`] changes.
    pub(crate) resets: Notify,
    /// The file for the whole trace, if one was requested.
    lines: Option<Mutex<File>>,
}

/// The records of a run.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) history: History,
    /// The session whose end is the last event that is checked.
    pub(crate) marker: Option<SessionId>,
    /// Position of the end of that session, once a node has reported it.
    marked: Option<Position>,
    /// Errors that clients must not get.
    pub(crate) odd: Vec<String>,
    /// What clients were sure of, and until when, in true time.
    pub(crate) sure: Sure,
    /// When a node first reported the event at a position.
    first_reported: BTreeMap<Position, Duration>,
    /// When a node first reported that a session had expired.
    pub(crate) expired: BTreeMap<SessionId, Duration>,
    /// Number of grants, each counted when it is first reported.
    pub(crate) granted: usize,
    newest_grant: Position,
    /// Number of recalls of cached holds, each counted when it is first reported.
    pub(crate) recalled: usize,
    newest_recall: Position,
    /// How often data of a client arrived at each node.
    pub(crate) arrivals: [usize; NODES],
    /// The leader of each term, as the nodes reported it, and when.
    pub(crate) leaders: Vec<(Duration, u64, u64)>,
    /// Whether the node that was asked last claims to lead; `None` before its answer.
    pub(crate) claims_to_lead: Option<bool>,
    /// Why nodes stopped without a command.
    pub(crate) stopped: Vec<String>,
    /// Number of watches that continued after an installed snapshot.
    pub(crate) installs: usize,
    /// The faults that were injected, and which of them took effect.
    pub(crate) injected: InjectedFaults,
    /// The host whose connections break on the side of the nodes that accepted them.
    pub(crate) reset: Option<&'static str>,
    /// Hosts whose process was killed: they refuse all connections. A host without power does not answer.
    pub(crate) killed: BTreeSet<&'static str>,
    /// The direction in which connections are refused although the process lives.
    pub(crate) refused: Option<(&'static str, &'static str)>,
    /// Directions in which data is read late, and by how much.
    pub(crate) late: BTreeMap<(&'static str, &'static str), Duration>,
    /// How often data was read late.
    pub(crate) late_arrivals: usize,
    /// Violations that single scenarios found.
    pub(crate) found: Vec<(&'static str, String)>,
    digest: u64,
}

impl Notes {
    /// Whether a connection from one host to another is refused.
    pub(crate) fn refuses(&self, from: &'static str, to: &'static str) -> bool {
        self.killed.contains(to) || self.refused == Some((from, to))
    }

    /// Which nodes have reached the last event that is checked, by reporting it or with a snapshot that contains it.
    pub(crate) fn saw_marker(&self) -> [bool; NODES] {
        let reached = |node: usize| self.history.event_logs[node].stretches.last().map(|(_, to)| *to);
        std::array::from_fn(|node| self.marked.is_some_and(|marked| Some(marked) <= reached(node)))
    }

    /// Events in the order of the log, each with the time at which a node first reported it.
    pub(crate) fn log(&self) -> impl Iterator<Item = (Duration, &Event)> {
        let reported = self.history.event_logs.iter().flat_map(|event_log| &event_log.events);
        let events: BTreeMap<Position, &Event> = reported.map(|event| (event.position, event)).collect();
        events.into_iter().map(|(position, event)| (self.first_reported[&position], event))
    }
}

impl Run {
    pub(crate) fn new() -> Self {
        let history = History { event_logs: vec![EventLog::default(); NODES], ..History::default() };
        let notes = Mutex::new(Notes { history, ..Notes::default() });
        let path = std::env::var_os("LOCKKEEPER_TRACE");
        let lines = path.map(|path| Mutex::new(File::create(path).expect("a file for the trace")));
        Self { notes, stopping: AtomicBool::new(false), resets: Notify::new(), lines }
    }

    /// Locks the records. A run has a single thread, so a second lock would wait forever. It panics instead.
    #[track_caller]
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        match self.notes.try_lock() {
            Ok(notes) => notes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("the notes are taken already"),
        }
    }

    /// Adds a line to the trace with time, host and text.
    pub(crate) fn trace(&self, host: &str, what: impl FnOnce() -> String) {
        let line = format!("{:>12} {host} {}", truth().as_micros(), what());
        let mut notes = self.notes();
        for byte in line.bytes() {
            notes.digest = (notes.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &self.lines {
            writeln!(lines.lock().unwrap(), "{line}").expect("written");
        }
    }

    /// The digest of the trace.
    pub(crate) fn digest(&self) -> u64 {
        self.notes().digest
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Records that data is sent from one host to another.
    pub(crate) fn sent(&self, from: &'static str, to: Option<&'static str>) {
        if let Some(to) = to {
            self.notes().injected.sent(from, to);
        }
    }

    /// Records that a node leads.
    pub(crate) fn leads(&self, node: u64, term: u64) {
        let mut notes = self.notes();
        notes.leaders.push((truth(), term, node));
        notes.injected.led();
    }

    /// Records an event that a node reports.
    pub(crate) fn reported(&self, node: usize, event: Event) {
        self.trace(NODE_HOSTS[node], || format!("{} {:?}", event.position, event.kind));
        let mut notes = self.notes();
        match &event.kind {
            EventKind::SessionEnded { reason: EndReason::Expired, .. } => {
                let session = event.subject.session().expect("its session");
                notes.expired.entry(session).or_insert(truth());
            }
            EventKind::Granted { .. } if notes.newest_grant < event.position => {
                notes.newest_grant = event.position;
                notes.granted += 1;
            }
            EventKind::Recalled if notes.newest_recall < event.position => {
                notes.newest_recall = event.position;
                notes.recalled += 1;
            }
            _ => {}
        }
        if matches!(event.kind, EventKind::SessionEnded { .. }) && event.subject.session() == notes.marker {
            notes.marked = Some(event.position);
        }
        notes.first_reported.entry(event.position).or_insert(truth());
        let event_log = &mut notes.history.event_logs[node];
        if let Some((_, to)) = event_log.stretches.last_mut() {
            *to = event.position;
        }
        event_log.events.push(event);
    }

    /// Records that a node reports events again after this position. It does not know the events in between.
    pub(crate) fn continues_at(&self, node: usize, from: Position) {
        self.notes().history.event_logs[node].stretches.push((from, from));
    }

    /// Records that a client is now sure of something until the time `until`.
    pub(crate) fn sure(&self, session_or_hold: SessionOrHold, until: Duration) {
        self.notes().sure.note(session_or_hold, truth(), until);
    }

    /// Records an error of a client. Outages and lost sessions are expected; refusals are not.
    pub(crate) fn note_error(&self, doing: &str, error: &ClientError) {
        self.trace("client", || format!("{doing}: {error}"));
        let expected = match error {
            ClientError::NotAcquired { .. } | ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } => true,
            ClientError::Service(error) => !matches!(error, ServiceError::Internal(_)),
            ClientError::Refused(_) | ClientError::Invalid(_) => false,
        };
        if !expected {
            self.notes().odd.push(format!("{doing} at {:?}: {error:?}", truth()));
        }
    }

    /// Records a violation that a scenario found: the invariant and what broke it.
    pub(crate) fn found(&self, invariant: &'static str, what: String) {
        self.notes().found.push((invariant, what));
    }
}
