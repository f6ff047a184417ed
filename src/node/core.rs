//! State that all parts of a node share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::admission::{BackupLimit, Watchers};
use super::auth::Auth;
use super::events::{ClaimWaiters, Hub};
use super::metrics::Metrics;
use super::proposer::queue::ProposalQueue;
use super::proposer::replies::DecidedReplies;
use super::rate_limit::RateLimits;
use super::source_rate::SourceRate;
use crate::audit::AuditLog;
use crate::auth::TokenHash;
use crate::clock::{Clock, Instant, millis};
use crate::config::Config;
use crate::limits;
use crate::machine::Applied;
use crate::model::{Announcement, ClusterSettings, DigestClaim, Member, RefusedDeadlock};
use crate::mutex::Mutex;
use crate::net::{ConnectionsMax, PortTls};
use crate::raft::Consensus;
use crate::service::{LeaderHint, Places};
use crate::storage::{DirectoryLock, SyncObserver};

/// State of one node, shared by the service, the proposer and the Raft callbacks.
pub(super) struct Core {
    pub(super) id: u64,
    pub(super) cluster: String,
    /// Id of the cluster among its nodes, see [`Config::peers_id`](crate::config::Config::peers_id).
    pub(super) peers_id: u128,
    /// Members that the config names; see [`members`](Self::members).
    pub(super) initial_members: BTreeMap<u64, Member>,
    pub(super) settings: ClusterSettings,
    pub(super) election_max: Duration,
    /// What this node reports about itself to the other members, without its rules, which may change.
    pub(super) announcement: Announcement,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) consensus: Consensus,
    /// Runtime from which the callers of large entries get their replies.
    pub(super) replies: tokio::runtime::Handle,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<ProposalQueue>,
    /// Digest that most voters agreed on last, until an entry carries it.
    pub(super) agreed: Mutex<Option<DigestClaim>>,
    /// Index of the log at which this leader found states of voters that differ without a majority; 0 if it has not.
    pub(super) split: AtomicU64,
    /// The node's directory; `None` for a node in memory.
    pub(super) data: Option<PathBuf>,
    /// Limits the commands per second that enter the queue.
    pub(super) rate_limits: RateLimits,
    /// Limits the wrong handles of each source.
    pub(super) wrong_handles: SourceRate,
    pub(super) backups: Arc<BackupLimit>,
    /// Limits the audited acts of each source.
    pub(super) acts: SourceRate,
    /// Limits the requests of each source to release a lock, which the audit log has, too.
    pub(super) asks: SourceRate,
    /// Limits the watches of each source.
    pub(super) watchers: Watchers,
    /// Limits the waits for an outcome that this node forwards to the leader.
    pub(super) forwarded_waits: Places,
    /// Most connections of the ports for clients.
    pub(super) connections: ConnectionsMax,
    /// Held during a transfer of leadership. Each transfer pauses the queue, and would end the pause of another one.
    pub(super) transfer: tokio::sync::Mutex<()>,
    /// Write-locked while this node, as the leader, checks and makes a change of the members: each check needs the
    /// result of the previous change. Read-locked by a transfer or a close, which would leave a change half-way.
    pub(super) changing_members: tokio::sync::RwLock<()>,
    /// When this node began to lead in its last term; `None` before it leads.
    pub(super) leads_since: Mutex<Option<Instant>>,
    /// What the operator of this node should change, for its status.
    pub(super) warnings: Mutex<Vec<String>>,
    /// When the first certificate of its ports for clients expires, in seconds since 1970.
    pub(super) port_certificate_end: Mutex<Option<u64>>,
    /// When the first certificate of each other member expires, as that member answered while this node led.
    pub(super) certificate_ends: Mutex<BTreeMap<u64, Option<u64>>>,
    /// Principals and rules; `None` if all callers may do everything.
    pub(super) auth: Option<Auth>,
    /// Tokens whose use the audit log has since the node has started.
    pub(super) seen_tokens: Mutex<BTreeSet<TokenHash>>,
    /// Where acts of operators and refused callers are written.
    pub(super) audit: Option<Arc<AuditLog>>,
    /// The leader, for the servers on top of this node.
    pub(super) leader: watch::Sender<Option<LeaderHint>>,
    /// Addresses of the members for clients, for the servers on top of this node.
    pub(super) endpoints: watch::Sender<Vec<String>>,
    /// Becomes true when the node is closed.
    pub(super) stop: watch::Sender<bool>,
    /// Becomes true when Raft has ended, so that the port for the other nodes may close.
    pub(super) raft_ended: watch::Sender<bool>,
}

/// What the Raft callbacks need before the [`Core`] exists.
pub(super) struct Shared {
    pub(super) hub: Arc<Hub>,
    pub(super) claim_waiters: ClaimWaiters,
    pub(super) metrics: Metrics,
    /// Replies that are sent when the events of their entry are published.
    pub(super) decided: Arc<DecidedReplies>,
    pub(super) clock: Arc<dyn Clock>,
    /// Time of the clock, in nanoseconds, when this node last applied an entry.
    applied_at: AtomicU64,
    pub(super) core: OnceLock<std::sync::Weak<Core>>,
    /// Lock of the data directory against other processes, held until the last part of the node is dropped. Empty for a
    /// node in memory, which has no directory.
    pub(super) lock: OnceLock<DirectoryLock>,
    /// Certificates for the other nodes; `None` for plain text.
    pub(super) certificates: Option<PortTls>,
    /// Reason that Raft stopped, if it did.
    pub(super) fatal: watch::Sender<Option<String>>,
    /// The last refused deadlocks, the newest last, for the servers on top of this node.
    pub(super) deadlocks: watch::Sender<VecDeque<RefusedDeadlock>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of {}", self.id, self.cluster)
    }
}

impl Shared {
    pub(super) fn new(config: &Config, clock: Arc<dyn Clock>, certificates: Option<PortTls>) -> Self {
        Self {
            hub: Arc::default(),
            claim_waiters: ClaimWaiters::default(),
            metrics: Metrics::new(config),
            decided: Arc::default(),
            applied_at: AtomicU64::new(clock.now().as_nanos()),
            clock,
            core: OnceLock::new(),
            lock: OnceLock::new(),
            certificates,
            fatal: watch::Sender::new(None),
            deadlocks: watch::Sender::default(),
        }
    }

    /// Publishes what an applied entry did: its events and deadlocks, then the replies of its callers.
    pub(super) fn applied(&self, applied: &Applied) {
        self.applied_at.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        self.hub.publish(&applied.events);
        for event in &*applied.events {
            self.claim_waiters.on_event(event);
        }
        if !applied.deadlocks.is_empty() {
            self.deadlocks.send_modify(|kept| applied.deadlocks.iter().for_each(|refused| remember(kept, refused)));
        }
        self.decided.send();
        self.metrics.applied(applied);
    }
}

/// Adds a refused deadlock to the newest ones. It replaces an earlier one of the same locks.
fn remember(kept: &mut VecDeque<RefusedDeadlock>, refused: &RefusedDeadlock) {
    kept.retain(|known| known.locks != refused.locks);
    if kept.len() == limits::REFUSED_DEADLOCKS_KEPT {
        kept.pop_front();
    }
    kept.push_back(refused.clone());
}

/// Measures the time from the write of a log entry until it is durable.
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
    /// Returns the members in the log; before the log has any, those of the config.
    pub(super) fn members(&self) -> BTreeMap<u64, Member> {
        let views = self.consensus.watch();
        let members = &views.borrow().members;
        if members.is_empty() {
            return self.initial_members.clone();
        }
        members.iter().map(|(id, seen)| (*id, seen.member.clone())).collect()
    }

    /// Returns the ids of the voters in the log.
    pub(super) fn voters(&self) -> BTreeSet<u64> {
        let views = self.consensus.watch();
        let members = &views.borrow().members;
        members.iter().filter(|(_, member)| member.voter).map(|(id, _)| *id).collect()
    }

    /// Returns the leader, as this node sees it, with its address for clients.
    pub(super) fn leader_hint(&self) -> Option<LeaderHint> {
        // The borrow of the view ends before the members are read from the same channel: a second borrow would
        // deadlock.
        let leader = self.consensus.watch().borrow().leader;
        self.hint(leader)
    }

    /// Returns a node as a hint for clients; `None` if it is not a known member.
    pub(super) fn hint(&self, leader: Option<u64>) -> Option<LeaderHint> {
        let node = leader?;
        let client = self.members().remove(&node)?.client;
        Some(LeaderHint { node, client })
    }

    /// Returns how long the cluster had no leader before this node, by what this node knows: the time since it last
    /// applied an entry, or knew of a leader. An idle cluster has a leader and applies no entries.
    pub(super) fn leaderless_ms(&self) -> u64 {
        let applied_at = Instant::from_nanos(self.shared.applied_at.load(Ordering::Relaxed));
        millis(self.clock.now().since(applied_at).min(self.consensus.since_leader()))
    }

    /// Waits until the node closes.
    pub(super) async fn stopped(&self) {
        // The sender is a part of this node, so the wait cannot fail.
        drop(self.stop.subscribe().wait_for(|stop| *stop).await);
    }

    /// Records that this node leads in a new term since now.
    pub(super) fn leads_since_now(&self, term: u64) {
        *self.leads_since.lock() = Some(self.clock.now());
        self.shared.metrics.term.set(term as f64);
        self.shared.metrics.leader.set(1.0);
        tracing::info!(node = self.id, term, "this node leads");
    }

    /// Returns for how long a node that leads has led in its term.
    pub(super) fn led_ms(&self) -> u64 {
        let since = *self.leads_since.lock();
        since.map_or(0, |since| millis(self.clock.now().since(since)))
    }
}
