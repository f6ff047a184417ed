//! A node that an application can embed: storage, consensus, the lock machine, and the lock service on top of them.
//!
//! Knows: all modules from limits to service. Never: protobuf, HTTP, the command line.
//!
//! ```text
//! calls ─► service ─► proposal queue ─► proposer ─► consensus ─► machine
//!             ▲                                                     │
//!             └──────── claim waiters, events ◄── raft callbacks ◄──┘
//! ```

mod admission;
mod audited;
mod auth;
mod authorizer;
pub mod backup;
mod buckets;
mod callers;
mod cluster;
mod core;
mod events;
mod forward;
mod leadership;
mod metrics;
mod open;
mod options;
mod outcomes;
mod proof;
mod proposer;
mod raft_callbacks;
mod rate_limit;
mod renewals;
mod serve_forwarded;
mod service;
mod source_rate;
mod validate;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use self::auth::Caller;
use self::core::Core;
use crate::limits;
use crate::mutex::Mutex;
use crate::service::ServerInfo;
pub use open::OpenNodeError;
#[cfg(feature = "cli")]
pub(crate) use open::examine;
pub use options::{NodeOptions, PeerNetwork, Tuning};

/// One node of a cluster. Cloning gives another handle on the same node; [`close`](Node::close) stops it.
///
/// Killing the process at any moment loses nothing that was acknowledged: the next start reads it from disk.
#[derive(Debug, Clone)]
pub struct Node {
    core: Arc<Core>,
    tasks: Arc<Tasks>,
    /// The caller of this handle: the application itself, unless a server or another node made the handle.
    caller: Caller,
}

/// The tasks and the runtime of a node; they end with it.
#[derive(Debug)]
struct Tasks {
    running: Mutex<JoinSet<()>>,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
    /// Runtime of the caller that opened the node.
    callers: tokio::runtime::Handle,
}

impl Node {
    /// Returns a handle on the node's lock service, for the application itself: it may do everything.
    #[must_use]
    pub fn service(&self) -> Self {
        self.clone()
    }

    /// Returns the id of this node.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.core.id
    }

    /// Whether this node leads and may decide: it has applied an entry of its own term, and a quorum followed it
    /// recently.
    #[must_use]
    pub fn leads(&self) -> bool {
        // After twice the longest election timeout the others may have elected another leader.
        self.core.consensus.watch().borrow().leads_within(2 * self.core.election_max)
    }

    /// Whether this node serves calls itself instead of forwarding them: it leads, or starts to lead within
    /// [`limits::LEADER_WAIT_MS`].
    async fn serves(&self) -> bool {
        (self.leads() && self.core.queue.is_open()) || Box::pin(self.wait_until_serving()).await
    }

    /// If this node was elected and does not lead yet, waits until it does. Returns whether it leads then. A client
    /// that was sent here would otherwise stay at a node that forwards every call, until another node sends it away.
    async fn wait_until_serving(&self) -> bool {
        let elsewhere = |view: &crate::raft::View| view.leader != Some(self.core.id) || view.fatal.is_some();
        let (mut views, mut later) = (self.core.consensus.watch(), self.core.consensus.watch());
        let mut opened = self.core.queue.opened();
        let begun = async {
            drop(views.wait_for(|view| elsewhere(view) || view.own_term_applied).await);
            // The proposer follows the same view and opens the queue, unless another node leads by then.
            tokio::select! {
                opened = opened.wait_for(|open| *open) => drop(opened),
                late = later.wait_for(elsewhere) => drop(late),
            }
        };
        drop(tokio::time::timeout(Duration::from_millis(limits::LEADER_WAIT_MS), begun).await);
        self.leads() && self.core.queue.is_open()
    }

    /// Returns the node's view of its cluster; the receiver reports each change.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<crate::raft::View> {
        self.core.consensus.watch()
    }

    /// Becomes true when the node starts to close: its servers then send their clients to other nodes.
    #[must_use]
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.core.stop.subscribe()
    }

    /// Returns what the servers on top of this node report about it.
    #[must_use]
    pub fn info(&self) -> ServerInfo {
        ServerInfo {
            cluster: self.core.cluster.clone(),
            cluster_id: self.core.consensus.cluster_id(),
            node: self.core.id,
            leader: self.core.leader.subscribe(),
            leaderless_max: Duration::from_millis(limits::WATCH_LEADERLESS_MS_MAX)
                .max(limits::WATCH_ELECTIONS_MAX * self.core.election_max),
            endpoints: self.core.endpoints.subscribe(),
            connections: self.core.connections,
            deadlocks: self.core.shared.deadlocks.subscribe(),
        }
    }

    /// Replaces the limits of commands per second for each namespace, which apply while this node leads. They should be
    /// the same on every node.
    pub fn set_rates(&self, rates: crate::config::Rates) {
        self.core.rate_limits.set(rates);
    }

    /// Replaces the warnings in this node's status: what its operator should change, one sentence each.
    pub fn set_warnings(&self, warnings: Vec<String>) {
        *self.core.warnings.lock() = warnings;
    }

    /// Sets when the first certificate of the ports for clients expires, in seconds since 1970. The status of the
    /// cluster shows the earlier end of this one and that of the port for other nodes.
    pub fn set_certificate_end(&self, seconds: Option<u64>) {
        *self.core.port_certificate_end.lock() = seconds;
    }

    /// Returns the certificate that this node shows to other nodes, and its end; `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<crate::net::CertificateEnd> {
        self.core.shared.certificates.as_ref().map(|certificates| certificates.own())
    }

    /// Reads the certificates for the other nodes again. If they have changed, new connections use them, and an open
    /// connection whose certificate they do not accept ends within a few seconds.
    ///
    /// # Errors
    /// The files cannot be used. Then the node continues with those that it has.
    pub fn reload_certificates(&self) -> Result<bool, crate::net::TlsError> {
        self.core.shared.certificates.as_ref().map_or(Ok(false), |certificates| certificates.reload())
    }

    /// Waits until an error that the node cannot recover from stops it, and returns the reason.
    pub async fn failed(&self) -> String {
        let mut fatal = self.core.shared.fatal.subscribe();
        match fatal.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the node was dropped".to_owned(),
        }
    }

    /// Waits until Raft, which has its own threads, has answered a question. A supervisor that awaits this detects a
    /// node that makes no progress. Returns at once if Raft has stopped.
    pub async fn makes_progress(&self) {
        let consensus = self.core.consensus.clone();
        // The task ends with an error only if the runtime of the node ends.
        drop(self.tasks.handle.spawn(async move { consensus.answers().await }).await);
    }

    /// Returns the index of the newest applied entry and the digest of the state after it: nodes with the same index
    /// have the same digest. Also checks every invariant of the lock state; the error names the broken one. This walks
    /// the whole state, and no entry is applied meanwhile.
    pub fn verified(&self) -> Result<(u64, u128), String> {
        self.core.consensus.verified()
    }

    /// Starts to write a snapshot file in the background. After that, the log before the snapshot can be purged, except
    /// for the margin. The error reports that the node has stopped.
    pub async fn write_snapshot(&self) -> Result<(), crate::service::ServiceError> {
        self.core.consensus.snapshot().await.map_err(|_| crate::service::ServiceError::Stopping)
    }

    /// Runs a task on the node's runtime until the node closes.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.tasks.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn_on(task, &self.tasks.handle);
    }

    /// Transfers leadership, ends all tasks of this node, and closes its files.
    pub async fn close(&self) {
        let grace = Duration::from_millis(limits::CLOSE_WAIT_MS);
        // The end of this node would leave a change of the members half-way. If the change takes longer than this, the
        // node closes all the same.
        let no_change = tokio::time::timeout(grace, self.core.changing_members.read()).await;
        self.hand_over_now().await;
        self.core.stop.send_replace(true);
        self.core.shared.claim_waiters.wake_all();
        if let Err(error) = self.core.consensus.shutdown().await {
            tracing::warn!(node = self.core.id, %error, "the last checkpoint was not written; the log has everything");
        }
        drop(no_change);
        self.core.raft_ended.send_replace(true);
        let mut running = std::mem::take(&mut *self.tasks.running.lock());
        let ended = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            running.abort_all();
        }
        self.tasks.stop_runtime();
    }

    /// Ends all tasks of this node at once, without a transfer of leadership and without a last checkpoint. Calls that
    /// wait fail. Needs a node with its own runtime, which also runs the tasks of Raft.
    pub(crate) fn abort(&self) {
        self.core.stop.send_replace(true);
        // The tasks have handles on the node, so it would never be dropped.
        drop(std::mem::take(&mut *self.tasks.running.lock()));
        self.core.queue.end();
        self.core.shared.claim_waiters.wake_all();
        self.tasks.stop_runtime();
    }
}

impl Tasks {
    /// Returns the runtime from which the callers of large entries get their replies: that of the caller that opened
    /// the node, in which most callers run. But if only one thread drives it, that thread may do something else, and
    /// callers of other runtimes would wait for it. Then it is the node's own runtime, if it has one.
    fn of_replies(&self) -> tokio::runtime::Handle {
        let own = self.runtime.lock().is_some();
        let one_thread = self.callers.metrics().num_workers() == 1;
        if own && one_thread { self.handle.clone() } else { self.callers.clone() }
    }

    /// Returns the number of asynchronous tasks of this node and of the application that opened it: servers,
    /// connections and calls.
    fn alive(&self) -> usize {
        let own = self.runtime.lock().is_some();
        let of_callers = self.callers.metrics().num_alive_tasks();
        if own { of_callers + self.handle.metrics().num_alive_tasks() } else { of_callers }
    }

    fn stop_runtime(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop_runtime();
    }
}
