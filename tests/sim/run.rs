//! What a run writes down: the trace, what clients believed, what nodes told.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::model::{EndReason, Event, EventKind, Position, SessionId};
use lockkeeper::service::ServiceError;
use tokio::sync::Notify;

use crate::bites::Bites;
use crate::checker::{History, Telling};
use crate::clock::truth;
use crate::sure::{Sure, Thing};

pub(crate) const NODES: usize = 3;

/// Names of the hosts of nodes, by id less one.
pub(crate) const NODE_HOSTS: [&str; NODES] = ["n1", "n2", "n3"];

/// Shared by everything in one run.
#[derive(Debug)]
pub(crate) struct Run {
    notes: Mutex<Notes>,
    stopping: AtomicBool,
    /// Wakes those who look at [`Notes::reset`].
    pub(crate) resets: Notify,
    /// Where the trace goes in full, for people.
    lines: Option<Mutex<File>>,
}

/// See [`Run`].
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) history: History,
    /// The session whose end is the last event that matters.
    pub(crate) marker: Option<SessionId>,
    /// Where that event is in the log, once a node has reported it.
    marked: Option<Position>,
    /// Errors that no client should meet.
    pub(crate) odd: Vec<String>,
    /// What clients were sure of, and until when, in true time.
    pub(crate) sure: Sure,
    /// When a node first reported the event at a position.
    first_reported: BTreeMap<Position, Duration>,
    /// When a node first told that a session had expired.
    pub(crate) expired: BTreeMap<SessionId, Duration>,
    /// Grants, each counted where it is first told.
    pub(crate) granted: usize,
    newest_grant: Position,
    /// How often something from a client arrived at each node.
    pub(crate) arrivals: [usize; NODES],
    /// Who led in which term, as nodes said of themselves.
    pub(crate) leaders: Vec<(Duration, u64, u64)>,
    /// Why a node stopped by itself.
    pub(crate) stopped: Vec<String>,
    /// Watches that were sent on after an installed snapshot.
    pub(crate) installs: usize,
    /// Faults that were tried, and those that did something.
    pub(crate) bites: Bites,
    /// The client whose connections break on the side of their nodes.
    pub(crate) reset: Option<&'static str>,
    /// Ways on which what arrives waits before it is read, and for how long.
    pub(crate) late: BTreeMap<(&'static str, &'static str), Duration>,
    /// How often something was read late.
    pub(crate) late_arrivals: usize,
    /// What single stories found.
    pub(crate) found: Vec<(&'static str, String)>,
    digest: u64,
}

impl Notes {
    /// Which nodes have come to the last event that matters: by reporting it, or by a snapshot that has it behind it.
    pub(crate) fn saw_marker(&self) -> [bool; NODES] {
        let reached = |node: usize| self.history.tellings[node].stretches.last().map(|(_, to)| *to);
        std::array::from_fn(|node| self.marked.is_some_and(|marked| Some(marked) <= reached(node)))
    }

    /// Events in the order of the log, each with the moment when a node first reported it.
    pub(crate) fn log(&self) -> impl Iterator<Item = (Duration, &Event)> {
        let reported = self.history.tellings.iter().flat_map(|telling| &telling.events);
        let events: BTreeMap<Position, &Event> = reported.map(|event| (event.position, event)).collect();
        events.into_iter().map(|(position, event)| (self.first_reported[&position], event))
    }
}

impl Run {
    pub(crate) fn new() -> Self {
        let history = History { tellings: vec![Telling::default(); NODES], ..History::default() };
        let notes = Mutex::new(Notes { history, ..Notes::default() });
        let path = std::env::var_os("LOCKKEEPER_TRACE");
        let lines = path.map(|path| Mutex::new(File::create(path).expect("a file for the trace")));
        Self { notes, stopping: AtomicBool::new(false), resets: Notify::new(), lines }
    }

    /// All of a run takes place on one thread: who asks for the notes while they are taken would wait for ever.
    #[track_caller]
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        match self.notes.try_lock() {
            Ok(notes) => notes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("the notes are taken already"),
        }
    }

    /// Adds a line to the trace: when, where, what.
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

    /// The trace's digest.
    pub(crate) fn digest(&self) -> u64 {
        self.notes().digest
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Something is sent from one host to another.
    pub(crate) fn sent(&self, from: &'static str, to: Option<&'static str>) {
        if let Some(to) = to {
            self.notes().bites.sent(from, to);
        }
    }

    /// A node says that it leads.
    pub(crate) fn leads(&self, node: u64, term: u64) {
        let mut notes = self.notes();
        notes.leaders.push((truth(), term, node));
        notes.bites.led();
    }

    /// A node tells an event.
    pub(crate) fn told(&self, node: usize, event: Event) {
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
            _ => {}
        }
        if matches!(event.kind, EventKind::SessionEnded { .. }) && event.subject.session() == notes.marker {
            notes.marked = Some(event.position);
        }
        notes.first_reported.entry(event.position).or_insert(truth());
        let telling = &mut notes.history.tellings[node];
        if let Some((_, to)) = telling.stretches.last_mut() {
            *to = event.position;
        }
        telling.events.push(event);
    }

    /// A node goes on telling after this position; what lies between is not known to it.
    pub(crate) fn goes_on(&self, node: usize, from: Position) {
        self.notes().history.tellings[node].stretches.push((from, from));
    }

    /// From now on a client is sure of something until then.
    pub(crate) fn sure(&self, thing: Thing, until: Duration) {
        self.notes().sure.note(thing, truth(), until);
    }

    /// Outages and lost sessions are part of the game; refusals are not.
    pub(crate) fn met(&self, doing: &str, error: &ClientError) {
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

    /// A story's own finding: the invariant and what broke it.
    pub(crate) fn found(&self, invariant: &'static str, what: String) {
        self.notes().found.push((invariant, what));
    }
}
