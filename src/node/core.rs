//! What all parts of a node share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::events::{ClaimWaiters, Hub};
use super::metrics::Metrics;
use super::proposer::queue::ProposalQueue;
use super::proposer::replies::DecidedReplies;
use super::rate_limit::RateLimits;
use crate::clock::{Clock, Instant};
use crate::machine::Applied;
use crate::model::{Announcement, ClusterSettings, DigestClaim};
use crate::raft::{Consensus, Member};
use crate::service::LeaderHint;
use crate::storage::{DirectoryLock, SyncObserver};

/// Shared by the service, the proposer and the hooks of one node.
pub(super) struct Core {
    pub(super) id: u64,
    pub(super) cluster: String,
    /// See [`Config::peers_id`](crate::config::Config::peers_id).
    pub(super) peers_id: u128,
    /// What its config says; see [`members`](Self::members).
    pub(super) founders: BTreeMap<u64, Member>,
    pub(super) settings: ClusterSettings,
    pub(super) election_max: Duration,
    /// What this node says of itself.
    pub(super) announcement: Announcement,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) consensus: Consensus,
    /// The runtime that opened this node: most of its callers run there, servers above all.
    pub(super) callers: tokio::runtime::Handle,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<ProposalQueue>,
    /// On what the voters' states agree: goes with the next entry.
    pub(super) agreed: AgreedDigest,
    /// Bounds how many commands a second enter the queue.
    pub(super) rate_limits: RateLimits,
    /// Who leads, for the servers in front of this node.
    pub(super) leader: watch::Sender<Option<LeaderHint>>,
    /// Where clients reach the members, for the same.
    pub(super) endpoints: watch::Sender<Vec<String>>,
    /// Set once when the node is closed.
    pub(super) stop: watch::Sender<bool>,
}

/// The digest that most voters agreed on last, until an entry carries it.
#[derive(Debug, Default)]
pub(super) struct AgreedDigest(Mutex<Option<DigestClaim>>);

impl AgreedDigest {
    /// Replaces the digest that the next entry carries.
    pub(super) fn set(&self, claim: DigestClaim) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    }

    /// Takes the digest for the next entry: each goes into one entry.
    pub(super) fn take(&self) -> Option<DigestClaim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What the hooks need before there is a [`Core`].
pub(super) struct Shared {
    pub(super) hub: Arc<Hub>,
    pub(super) claim_waiters: ClaimWaiters,
    pub(super) metrics: Metrics,
    /// Replies that are sent when the events of their entry are published.
    pub(super) decided: Arc<DecidedReplies>,
    pub(super) clock: Arc<dyn Clock>,
    /// When this node last applied an entry.
    applied_at: AtomicU64,
    pub(super) core: OnceLock<std::sync::Weak<Core>>,
    /// Held against other processes as long as anything of the node lives.
    lock: OnceLock<DirectoryLock>,
    /// Why Raft stopped, if it did.
    pub(super) fatal: watch::Sender<Option<String>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of {}", self.id, self.cluster)
    }
}

impl Shared {
    pub(super) fn new(node: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            hub: Arc::new(Hub::new()),
            claim_waiters: ClaimWaiters::default(),
            metrics: Metrics::new(node),
            decided: Arc::default(),
            applied_at: AtomicU64::new(clock.now().as_nanos()),
            clock,
            core: OnceLock::new(),
            lock: OnceLock::new(),
            fatal: watch::Sender::new(None),
        }
    }

    /// Holds the directory from now on.
    pub(super) fn keep(&self, lock: DirectoryLock) {
        // A node opens one directory: the slot is empty.
        self.lock.set(lock).ok();
    }

    /// An entry was applied.
    pub(super) fn applied(&self, applied: &Applied) {
        self.applied_at.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        self.hub.publish(&applied.events);
        for event in &*applied.events {
            self.claim_waiters.on_event(event);
        }
        self.decided.send();
        self.metrics.applied(applied);
    }

    pub(super) fn since_applied(&self) -> Duration {
        self.clock.now().since(Instant::from_nanos(self.applied_at.load(Ordering::Relaxed)))
    }
}

/// The time from handing a write to the log until it is durable.
impl SyncObserver for Shared {
    fn started(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn finished(&self, started: u64, _durable: bool) {
        let took = self.clock.now().since(Instant::from_nanos(started));
        self.metrics.fsync_seconds.record(took.as_secs_f64());
    }
}

impl Core {
    /// The members as the log has them; before there are any in it, those of the config.
    pub(super) fn members(&self) -> BTreeMap<u64, Member> {
        let views = self.consensus.watch();
        let members = &views.borrow().members;
        if members.is_empty() {
            return self.founders.clone();
        }
        members.iter().map(|(id, seen)| (*id, seen.member.clone())).collect()
    }

    /// Who leads, as this node sees it, and where clients reach that.
    pub(super) fn leader_hint(&self) -> Option<LeaderHint> {
        // The view is let go before the members are read from it: a reader that waits for itself waits for ever.
        let leader = self.consensus.watch().borrow().leader;
        self.hint(leader)
    }

    /// Where clients reach a node.
    pub(super) fn hint(&self, leader: Option<u64>) -> Option<LeaderHint> {
        let node = leader?;
        let client = self.members().remove(&node)?.client;
        Some(LeaderHint { node, client })
    }

    /// How long nobody led before this node did, as far as it can see: since it last applied an entry, where it had
    /// applied any, but not longer than the elections of this timing take.
    pub(super) fn leaderless_ms(&self) -> u64 {
        u64::try_from(self.shared.since_applied().as_millis()).unwrap_or(u64::MAX)
    }

    /// This node leads since now.
    pub(super) fn leads_since(&self, term: u64) {
        self.shared.metrics.leads(term);
        tracing::info!(node = self.id, term, "this node leads");
    }
}
