//! The journal of a drill: what was done to the nodes, and what the clients observed. All times are microseconds since
//! the drill began.

use std::sync::MutexGuard;

use serde::Serialize;
use tokio::sync::watch;

use crate::clock::{Clock, Instant, SystemClock, micros};
use crate::model::{FencingToken, Mode};
use crate::mutex::Mutex;

#[derive(Debug, Clone)]
pub(super) struct LockInfo {
    pub(super) name: String,
    /// The limit of permits of a semaphore.
    pub(super) limit: Option<u32>,
}

/// One hold, as its holder observed it.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) lock: usize,
    pub(super) client: usize,
    pub(super) mode: Mode,
    pub(super) token: FencingToken,
    /// When the request was sent.
    pub(super) asked_us: u64,
    pub(super) granted_us: u64,
    /// When the holder released the lock or could no longer be sure of it; `None` while it holds.
    pub(super) ended_us: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// SIGKILL to one node.
    Kill,
    /// SIGSTOP to one node, and SIGCONT later.
    Pause,
    /// SIGKILL, or SIGSTOP and SIGCONT, to all nodes at once.
    All,
    /// SIGTERM to one node.
    Stop,
    Transfer,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [Kind::Kill, Kind::Pause, Kind::All, Kind::Stop, Kind::Transfer];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::All => "all",
            Kind::Stop => "stop",
            Kind::Transfer => "transfer",
        }
    }
}

/// A fault that the drill caused.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) round: u32,
    /// Ids of the nodes that were hit; for a transfer, the next leader.
    pub(super) nodes: Vec<u64>,
    pub(super) at_us: u64,
}

/// A promise of the service that a drill judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Promise {
    Overlap,
    Token,
    Grant,
    Session,
    Expiry,
}

impl Promise {
    pub(super) const ALL: [Promise; 5] =
        [Promise::Overlap, Promise::Token, Promise::Grant, Promise::Session, Promise::Expiry];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Promise::Overlap => "No two conflicting holds overlap",
            Promise::Token => "The tokens of a lock rise",
            Promise::Grant => "No acknowledged grant is lost",
            Promise::Session => "No session ends before its TTL",
            Promise::Expiry => "An expired lease is passed on in time",
        }
    }
}

/// A promise that was broken, and where.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Broken {
    pub(super) promise: Promise,
    pub(super) at_us: u64,
    pub(super) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Up,
    Down,
    Paused,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    pub(super) locks: Vec<LockInfo>,
    pub(super) clients: Vec<String>,
    /// Number of clients, the first ones, that contend all the time.
    pub(super) contenders: usize,
    pub(super) holds: Vec<Hold>,
    pub(super) faults: Vec<Fault>,
    /// Each change of the leader.
    pub(super) leaders: Vec<(u64, Option<u64>)>,
    /// Each change of the state of a node: when, its id, and its new state.
    pub(super) states: Vec<(u64, u64, NodeState)>,
    pub(super) sessions: u64,
    pub(super) lost_sessions: u64,
    /// Broken promises that a client observed directly.
    pub(super) broken: Vec<Broken>,
    pub(super) ended_us: u64,
}

/// A timeline to which all tasks of a drill add. It is locked for microseconds, and never across an await.
#[derive(Debug)]
pub(super) struct Journal {
    clock: SystemClock,
    began: Instant,
    timeline: Mutex<Timeline>,
    /// For each contender, when it sent the last request that was granted.
    served: watch::Sender<Vec<u64>>,
}

impl Journal {
    pub(super) fn new(timeline: Timeline) -> Self {
        let clock = SystemClock::new();
        let served = watch::Sender::new(vec![0; timeline.contenders]);
        Self { clock, began: clock.now(), timeline: Mutex::new(timeline), served }
    }

    pub(super) fn now(&self) -> u64 {
        micros(self.clock.now().since(self.began))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock()
    }

    /// Records a grant at the moment of its receipt. Returns the index of the hold.
    pub(super) fn granted(&self, hold: Hold) -> usize {
        let (client, asked) = (hold.client, hold.asked_us);
        let mut timeline = self.lock();
        timeline.holds.push(hold);
        let index = timeline.holds.len() - 1;
        drop(timeline);
        self.served.send_if_modified(|served| served.get_mut(client).map(|last| *last = asked).is_some());
        index
    }

    pub(super) fn ended(&self, hold: usize, at_us: u64) {
        if let Some(hold) = self.lock().holds.get_mut(hold) {
            hold.ended_us = Some(at_us);
        }
    }

    pub(super) fn broken(&self, promise: Promise, detail: String) {
        let at_us = self.now();
        self.lock().broken.push(Broken { promise, at_us, detail });
    }

    pub(super) fn state(&self, node: u64, state: NodeState) {
        let at_us = self.now();
        self.lock().states.push((at_us, node, state));
    }

    /// Records which node leads, if it has changed.
    pub(super) fn leader(&self, leader: Option<u64>) {
        let at_us = self.now();
        let mut timeline = self.lock();
        if timeline.leaders.last().and_then(|(_, last)| *last) != leader {
            timeline.leaders.push((at_us, leader));
        }
    }

    /// Waits until each contender was granted a request that it sent after this time.
    pub(super) async fn all_served_since(&self, at_us: u64) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.served.subscribe().wait_for(|served| served.iter().all(|asked| at_us < *asked)).await;
    }

    pub(super) fn finish(&self) -> Timeline {
        let mut timeline = self.lock().clone();
        timeline.ended_us = self.now();
        timeline
    }
}
