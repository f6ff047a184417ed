//! The handle to Raft: propose, read, watch, transfer leadership, stop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, InitializeError, LinearizableReadError, RaftError};
use openraft::impls::OneshotResponder;
use openraft::{Instant as _, Raft, ReadPolicy};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Server as Transport;

use super::checkpoints;
use super::connections::Connections;
use super::error::{ProposeError, StartError};
use super::failure_detector::FailureDetector;
use super::hooks::Hooks;
use super::log_store::LogStore;
use super::messages::SelfIdentity;
use super::network;
use super::payload::Origin;
use super::peer::Network;
use super::peer_server::Server;
use super::settings::RaftSettings;
use super::state_machine::{Shared, StateMachine};
use super::types::{LeaderId, Listener, Proposal, Types};
use super::view::{self, View};
use crate::limits;
use crate::machine::{Applied, Machine};
use crate::model::{DigestClaim, Entry};
use crate::mutex::Mutex;
use crate::net::{Connection, Connector};
use crate::protobuf::HalfMessages;
use crate::storage::{Job, Recovered, SnapshotFile, StateStore, Wal};

/// Returns the transport of the peer port, with a limit on what one connection may use.
pub(super) fn bounded_transport() -> Transport {
    Transport::builder()
        .max_concurrent_streams(limits::PEER_STREAMS_A_CONNECTION_MAX)
        .http2_max_header_list_size(limits::PEER_HEADER_LIST_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(limits::PENDING_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(limits::PEER_ERROR_RESETS_MAX))
        .initial_stream_window_size(limits::PEER_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::PEER_CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_millis(limits::KEEPALIVE_MS)))
        .http2_keepalive_timeout(Some(Duration::from_millis(limits::KEEPALIVE_WAIT_MS)))
}

/// An entry in the queue of the Raft core. The log has it after every entry that was submitted earlier.
pub struct Submitted {
    answer: Pin<Box<dyn Future<Output = Result<Arc<Applied>, ProposeError>> + Send>>,
}

impl Submitted {
    /// Waits until the entry is applied on this node, for at most [`limits::COMMIT_WAIT_MS_MAX`] milliseconds. A
    /// partitioned leader never answers, so after a timeout the outcome of the entry is unknown.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn applied(self) -> Result<Arc<Applied>, ProposeError> {
        let limit = Duration::from_millis(limits::COMMIT_WAIT_MS_MAX);
        match tokio::time::timeout(limit, self.answer).await {
            Ok(answer) => answer,
            Err(_) => Err(ProposeError::Unknown(format!("not committed within {} ms", limits::COMMIT_WAIT_MS_MAX))),
        }
    }
}

struct Inner {
    settings: RaftSettings,
    raft: Raft<Types, StateMachine>,
    shared: Arc<Shared>,
    network: Network,
    detector: FailureDetector,
    view: watch::Receiver<View>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// The Raft of one node. A clone is another handle to the same Raft, which runs until [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct Consensus(Arc<Inner>);

impl Consensus {
    /// Starts from the recovered contents of the directory. All tasks run on the caller's tokio runtime, which should
    /// be reserved for Raft.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        settings: RaftSettings,
        wal: Arc<dyn Wal>,
        store: Arc<dyn StateStore>,
        recovered: &Recovered,
        hooks: Arc<dyn Hooks>,
        connector: Connector,
    ) -> Result<Self, StartError> {
        let config = Arc::new(settings.openraft_config()?);
        let RaftSettings { peers_id, node, disk, process, .. } = settings;
        let origin = Origin { cluster: settings.cluster.clone(), peers_id };
        let me = SelfIdentity { peers_id, node, disk, process };
        let shared = Shared::new(me, origin, recovered, store, Arc::clone(&wal), hooks);
        let shared = Arc::new(shared.map_err(|error| StartError::Stored(error.to_string()))?);
        let (links, acknowledged) = (Arc::new(Connections::new(connector)), Arc::default());
        let lag_entries_max = settings.replication_lag_entries_max;
        let network = Network { shared: Arc::clone(&shared), links, acknowledged, lag_entries_max };
        let machine = StateMachine(Arc::clone(&shared));
        let raft = Raft::new(settings.node, config, network.clone(), LogStore::new(wal), machine)
            .await
            .map_err(|error| StartError::Stored(error.to_string()))?;
        let (sender, view) = watch::channel(View::default());
        let (detector, ended) = FailureDetector::new(raft.clone(), network.clone());
        let (links, members, me) = (Arc::clone(&network.links), raft.metrics(), settings.node);
        let others = move || {
            let known = members.borrow_watched();
            let nodes = known.membership_config.nodes().filter(|(node, _)| **node != me);
            nodes.map(|(node, member)| (*node, member.peer.clone())).collect()
        };
        let tasks = vec![
            tokio::spawn(links.keep_open(others)),
            tokio::spawn(detector.clone().run(ended)),
            tokio::spawn(view::follow(raft.clone(), Arc::clone(&shared), sender)),
            tokio::spawn(checkpoints::keep(raft.clone(), Arc::clone(&shared), settings.clone())),
        ];
        let inner = Inner { settings, raft, shared, network, detector, view, tasks: Mutex::new(tasks) };
        Ok(Self(Arc::new(inner)))
    }

    /// Answers the calls of the other nodes until `shutdown` completes.
    ///
    /// # Errors
    /// Returns the errors of the listener.
    pub async fn serve(
        &self,
        incoming: impl futures_util::Stream<Item = io::Result<Connection>> + Send,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let server =
            Server { raft: self.0.raft.clone(), shared: Arc::clone(&self.0.shared), detector: self.0.detector.clone() };
        bounded_transport()
            .add_service(HalfMessages::new(server.service(), limits::PEER_MESSAGE_BYTES_MAX, &Arc::default()))
            .serve_with_incoming_shutdown(incoming, shutdown)
            .await
            .map_err(io::Error::other)
    }

    /// Founds the cluster with the members in the settings. Only the founding member with the lowest id does this; the
    /// other members do nothing and receive the membership from it. A single founder avoids split votes in the first
    /// election. It costs no availability, because a cluster cannot be founded without a quorum anyway. A node that
    /// already knows a membership does nothing.
    ///
    /// # Errors
    /// Returns the reason: the members are not acceptable, or what stopped this node's Raft.
    pub async fn initialize(&self) -> Result<(), String> {
        let members = &self.0.settings.members;
        if members.keys().next() != Some(&self.0.settings.node) {
            return Ok(());
        }
        match self.0.raft.initialize(members.clone()).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Puts an entry into the queue of the Raft core. The core appends it only while this node leads in `term`. If one
    /// submission returns before another one begins, either the log has both entries in that order, or the later one is
    /// not appended. The listener is called with the results while the entry is applied on this node, even if this node
    /// has stopped leading by then.
    ///
    /// # Errors
    /// [`ProposeError::Stopped`].
    pub async fn submit(
        &self,
        term: u64,
        entry: Entry,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Submitted, ProposeError> {
        let (responder, answer) = OneshotResponder::<Types, _>::new_pair();
        let leader = LeaderId { term, node_id: self.0.settings.node };
        let write = self.0.raft.write(Proposal::new(entry, listener)).responder(responder).with_leader(leader);
        write.await.map_err(|_| ProposeError::Stopped)?;
        let answer = Box::pin(async move {
            match answer.await {
                Ok(Ok(response)) => {
                    response.data.ok_or_else(|| ProposeError::Unknown("the entry was applied as a blank".to_owned()))
                }
                Ok(Err(ClientWriteError::ForwardToLeader(to))) => Err(ProposeError::NotSent { leader: to.leader_id }),
                Ok(Err(ClientWriteError::LogEntryDiscarded(_))) => {
                    Err(ProposeError::Unknown("another leader replaced the entry here".to_owned()))
                }
                Ok(Err(
                    error @ (ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_)),
                )) => Err(ProposeError::Unknown(error.to_string())),
                // The log may have the entry, so it may still be applied.
                Err(_) => Err(ProposeError::Unknown("the node stopped".to_owned())),
            }
        });
        Ok(Submitted { answer })
    }

    /// Waits until this node's state contains everything that any node had acknowledged before the call. A round trip
    /// to a quorum proves this. Reads that wait at the same time share one round trip.
    ///
    /// # Errors
    /// [`ProposeError::NotSent`] if this node does not lead or finds no quorum.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        // Boxed, because the compiler limits how deeply the futures of an application are nested.
        match Box::pin(self.0.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
                Err(ProposeError::NotSent { leader: to.leader_id })
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                Err(ProposeError::NotSent { leader: None })
            }
            Err(RaftError::Fatal(_)) => Err(ProposeError::Stopped),
        }
    }

    /// Waits until the task that runs Raft has answered a question. Returns at once if Raft has stopped.
    pub async fn answers(&self) {
        drop(self.0.raft.with_raft_state(|_| ()).await);
    }

    /// Whether this node is proven to have led at `since` or later: a quorum has acknowledged a message that this node
    /// sent then. Nothing is sent; if the answer is no, [`read_barrier`](Self::read_barrier) obtains the proof.
    #[must_use]
    pub fn led_since(&self, since: Instant) -> bool {
        let age = since.elapsed();
        let acked = self.0.raft.metrics().borrow_watched().last_quorum_acked;
        acked.is_some_and(|acked| acked.elapsed() <= age)
    }

    /// Whether the leader that this node follows sent it entries or a heartbeat within this time. The task that runs
    /// Raft answers.
    pub async fn in_contact_within(&self, time: Duration) -> bool {
        let last = self.0.raft.with_raft_state(|state| state.vote_last_modified()).await;
        last.ok().flatten().is_some_and(|last| last.elapsed() <= time)
    }

    /// Returns the time since this node last knew of a leader: it accepted a message of another node that led, or a
    /// quorum acknowledged this node in an earlier term. Before the first leader, returns the time since the start.
    #[must_use]
    pub fn since_leader(&self) -> Duration {
        self.0.shared.led_at.lock().elapsed()
    }

    /// Watches the cluster's id: `None` until this node has applied the entry that sets it.
    #[must_use]
    pub fn cluster_id(&self) -> watch::Receiver<Option<u128>> {
        self.0.shared.cluster_id.subscribe()
    }

    pub(super) fn raft(&self) -> &Raft<Types, StateMachine> {
        &self.0.raft
    }

    /// Calls `look` with the machine in its current state. No entry is applied meanwhile, so `look` must be short.
    pub fn machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        look(&self.0.shared.core().machine)
    }

    /// Returns the index of the newest applied entry and the digest of the whole state after it. Reads the whole state.
    ///
    /// # Errors
    /// Names the invariant of the machine that does not hold.
    pub fn verified(&self) -> Result<(u64, u128), String> {
        let mut core = self.0.shared.core();
        let core = &mut *core;
        core.dirty.fold(&mut core.machine);
        core.machine.check()?;
        Ok((core.last.map_or(0, |id| id.index), core.dirty.digest()))
    }

    /// The recent digests of this node's state that it has kept, oldest first; see [`limits::DIGEST_MS`].
    #[must_use]
    pub fn digests(&self) -> Vec<DigestClaim> {
        self.0.shared.core().dirty.claims()
    }

    /// Watches the state of Raft.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<View> {
        self.0.view.clone()
    }

    /// Size of the Raft log on disk, in bytes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.0.shared.wal.size_bytes()
    }

    /// Size of the newest snapshot file in bytes; `None` before the first one.
    #[must_use]
    pub fn snapshot_bytes(&self) -> Option<u64> {
        self.0.shared.store.current_snapshot().map(|file| file.size_bytes())
    }

    /// Transfers the leadership to the node `to`, and waits until that node leads. Until then this node accepts no
    /// entries.
    ///
    /// # Errors
    /// [`ProposeError::NotSent`] if this node does not lead, or if `to` is not a follower that has the whole log and
    /// answered within two heartbeats. [`ProposeError::Unknown`] if another node became the leader, or if none did
    /// within twice the longest election timeout.
    ///
    /// Raft never cancels a transfer. After a failed one this node accepts no more entries in that term, and sends no
    /// heartbeats. So the followers elect a leader that has the whole log, if necessary with the vote of this node. If
    /// there is no quorum, no node leads until there is one again.
    pub async fn transfer(&self, to: u64) -> Result<(), ProposeError> {
        let mut views = self.watch();
        let contact_within = Duration::from_millis(2 * self.0.settings.timing.heartbeat_ms);
        let view = views.borrow_and_update().clone();
        if !view.can_take_over(to, 0, contact_within) {
            return Err(ProposeError::NotSent { leader: view.leader });
        }
        self.0.raft.trigger().transfer_leader(to).await.map_err(|_| ProposeError::Stopped)?;
        let me = self.0.settings.node;
        let limit = Duration::from_millis(2 * self.0.settings.timing.election_max_ms);
        let changed = views.wait_for(|view| view.leader.is_some_and(|leader| leader != me));
        let leader = match tokio::time::timeout(limit, changed).await {
            Ok(Ok(view)) => view.leader,
            Ok(Err(_)) => return Err(ProposeError::Unknown("the node stopped".to_owned())),
            Err(_) => None,
        };
        match leader {
            Some(leader) if leader == to => Ok(()),
            Some(other) => Err(ProposeError::Unknown(format!("node {other} took over instead of node {to}"))),
            None => Err(ProposeError::Unknown(format!("node {to} did not take over"))),
        }
    }

    /// Sends a payload to another node, and waits for its answer for at most `deadline`. Raft does not interpret the
    /// payload.
    ///
    /// # Errors
    /// `TimedOut` after the deadline; otherwise the error of the connection or of the other node.
    pub async fn forward(&self, node: u64, payload: Bytes, deadline: Duration) -> io::Result<Bytes> {
        let membership = self.0.raft.metrics().borrow_watched().membership_config.clone();
        let known = membership.get_node(&node).or_else(|| self.0.settings.members.get(&node));
        let address = known.map(|member| member.peer.clone());
        let address = address.ok_or_else(|| io::Error::other(format!("node {node} is not a member")))?;
        network::forward(&self.0.network, (node, &address), payload, deadline).await
    }

    /// Writes a snapshot file now, and purges the log up to the configured number of entries before it.
    ///
    /// # Errors
    /// [`ProposeError::Stopped`].
    pub async fn snapshot(&self) -> Result<(), ProposeError> {
        self.0.raft.trigger().snapshot().await.map_err(|_| ProposeError::Stopped)
    }

    /// Writes a snapshot file of the current state. The log is not purged.
    ///
    /// # Errors
    /// The errors of the disk, after which the node continues.
    pub async fn backup(&self) -> io::Result<SnapshotFile> {
        self.0.shared.export().await
    }

    /// Stops Raft, writes a last checkpoint, and waits for the writers. The log and the state store can then be
    /// dropped.
    ///
    /// # Errors
    /// The errors of the last checkpoint. Everything that was acknowledged is nevertheless durable in the log.
    pub async fn shutdown(&self) -> io::Result<()> {
        // An error means that the core had stopped earlier, so there is nothing left to stop.
        let _ = self.0.raft.shutdown().await;
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for task in tasks {
            task.abort();
            // The result only says that the task was aborted.
            let _ = task.await;
        }
        let written = if self.0.shared.fault.borrow().is_none() { self.0.shared.checkpoint().await } else { Ok(()) };
        let closed = self.0.shared.run_job(Job::Close).await;
        written.and(closed)
    }
}
