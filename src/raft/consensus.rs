//! The handle on Raft: propose, read, watch, hand over, stop.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, InitializeError, LinearizableReadError, RaftError};
use openraft::impls::OneshotResponder;
use openraft::{Raft, ReadPolicy};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Server as Transport;

use super::blocking::awaited;
use super::checkpoints;
use super::connections::Connections;
use super::error::{ProposeError, StartError};
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
use crate::net::{Connection, Connector};
use crate::storage::{Job, Recovered, SnapshotFile, StateStore, Wal};

/// An entry in the queue of the Raft core: its place in the log is behind every one submitted before.
pub struct Submitted {
    answer: Pin<Box<dyn Future<Output = Result<Arc<Applied>, ProposeError>> + Send>>,
}

impl Submitted {
    /// Waits until it is applied here, at most [`limits::COMMIT_WAIT_MS_MAX`]. A leader that is cut off never answers,
    /// so an end of the wait says nothing about the entry.
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
    view: watch::Receiver<View>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// One node's Raft. A clone is another handle on the same one; it runs until [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct Consensus(Arc<Inner>);

impl Consensus {
    /// Starts from what the directory held. All tasks run on the tokio runtime of the caller, which should be Raft's own.
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
        let config = Arc::new(settings.config()?);
        let RaftSettings { peers_id, group_id, node, disk, .. } = settings;
        let origin = Origin { cluster: settings.cluster.clone(), peers_id };
        let me = SelfIdentity { peers_id, group_id, node, disk };
        let shared = Shared::new(me, origin, recovered, store, Arc::clone(&wal), hooks);
        let shared = Arc::new(shared.map_err(|error| StartError::Stored(error.to_string()))?);
        let (links, acknowledged) = (Arc::new(Connections::new(connector)), Arc::default());
        let network = Network { shared: Arc::clone(&shared), links, acknowledged };
        let machine = StateMachine(Arc::clone(&shared));
        let raft = Raft::new(settings.node, config, network.clone(), LogStore::new(wal), machine)
            .await
            .map_err(|error| StartError::Stored(error.to_string()))?;
        let (sender, view) = watch::channel(View::default());
        let tasks = vec![
            tokio::spawn(view::follow(raft.clone(), Arc::clone(&shared), sender)),
            tokio::spawn(checkpoints::keep(raft.clone(), Arc::clone(&shared), (&settings).into())),
        ];
        let inner = Inner { settings, raft, shared, network, view, tasks: Mutex::new(tasks) };
        Ok(Self(Arc::new(inner)))
    }

    /// Serves the other nodes until `shutdown` completes.
    ///
    /// # Errors
    /// Those of the listener.
    pub async fn serve(
        &self,
        incoming: impl futures_util::Stream<Item = io::Result<Connection>> + Send,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let server = Server { raft: self.0.raft.clone(), shared: Arc::clone(&self.0.shared) };
        Transport::builder()
            .add_service(server.service())
            .serve_with_incoming_shutdown(incoming, shutdown)
            .await
            .map_err(io::Error::other)
    }

    /// Founds the cluster with the settings' members, on the founding member with the lowest id; the others do nothing
    /// and learn from it. One founder costs no availability (without a quorum nothing could be founded either), and
    /// spares the first election its split votes. A node that knows a membership already does nothing.
    ///
    /// # Errors
    /// [`ProposeError::Stopped`]; [`ProposeError::Unknown`] with the reason when the members are not acceptable.
    pub async fn initialize(&self) -> Result<(), ProposeError> {
        let members = &self.0.settings.members;
        if members.keys().next() != Some(&self.0.settings.node) {
            return Ok(());
        }
        match self.0.raft.initialize(members.clone()).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(error @ InitializeError::NotInMembers(_))) => {
                Err(ProposeError::Unknown(error.to_string()))
            }
            Err(RaftError::Fatal(_)) => Err(ProposeError::Stopped),
        }
    }

    /// Puts an entry into the Raft core's queue, to be appended only while this node leads in `term`. Two entries whose
    /// submissions return one after the other stand in the log in that order, or the later one is not appended. Who listens
    /// hears what is decided while the entry is applied here, also when it is applied after this node stopped leading.
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
                Err(_) => Err(ProposeError::Stopped),
            }
        });
        Ok(Submitted { answer })
    }

    /// [`submit`](Self::submit) in the present term, and the wait for its application.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn propose(&self, entry: Entry) -> Result<Arc<Applied>, ProposeError> {
        let term = self.0.raft.metrics().borrow_watched().current_term;
        self.submit(term, entry, None).await?.applied().await
    }

    /// Waits until this node's state contains everything that was answered anywhere before the call, proven by a round
    /// to a quorum. Many waiting reads share one round.
    ///
    /// # Errors
    /// [`ProposeError::NotSent`] where this node does not lead or finds no quorum.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        match self.0.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
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

    /// The cluster's id, and when it is fixed: `None` until this node has applied the entry that fixes it.
    #[must_use]
    pub fn cluster_id(&self) -> watch::Receiver<Option<u128>> {
        self.0.shared.cluster_id.subscribe()
    }

    pub(super) fn raft(&self) -> &Raft<Types, StateMachine> {
        &self.0.raft
    }

    /// Looks at the machine as it is now. Applying waits meanwhile, so be quick.
    pub fn machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        look(&self.0.shared.core().machine)
    }

    /// The index of the newest applied entry and the digest of the whole state after it. Walks the whole state.
    ///
    /// # Errors
    /// The invariant of the machine that is broken.
    pub fn verified(&self) -> Result<(u64, u128), String> {
        let mut core = self.0.shared.core();
        let core = &mut *core;
        core.dirty.fold(&mut core.machine);
        core.machine.check()?;
        Ok((core.last.map_or(0, |id| id.index), core.dirty.digest()))
    }

    /// The digests of this node's state that it remembers, oldest first: see [`limits::DIGEST_MS`].
    #[must_use]
    pub fn digests(&self) -> Vec<DigestClaim> {
        self.0.shared.core().dirty.claims()
    }

    /// What Raft is doing, as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<View> {
        self.0.view.clone()
    }

    /// Bytes of the Raft log on disk.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.0.shared.wal.size_bytes()
    }

    /// Bytes of the newest snapshot file; `None` before the first.
    #[must_use]
    pub fn snapshot_bytes(&self) -> Option<u64> {
        self.0.shared.store.current_snapshot().map(|file| file.size_bytes())
    }

    /// Hands leadership to `to`, and waits until that node leads. The old leader takes no entries meanwhile.
    ///
    /// # Errors
    /// [`ProposeError::NotSent`] where this node does not lead, or `to` is not a follower at the log's end that was
    /// heard of within two heartbeats. [`ProposeError::Unknown`] where another node took over instead, or none did in twice the
    /// longest election timeout. Raft never takes a hand-over back: this node takes no entries in that term any more. It sends no
    /// heartbeats either, so that a follower with the whole log is elected, with this node's vote where that is needed;
    /// without a quorum it lasts until there is one again.
    pub async fn transfer(&self, to: u64) -> Result<(), ProposeError> {
        let mut views = self.watch();
        let heard_within = Duration::from_millis(2 * self.0.settings.timing.heartbeat_ms);
        let view = views.borrow_and_update().clone();
        if !view.can_take_over(to, heard_within) {
            return Err(ProposeError::NotSent { leader: view.leader });
        }
        self.0.raft.trigger().transfer_leader(to).await.map_err(|_| ProposeError::Stopped)?;
        let me = self.0.settings.node;
        let limit = Duration::from_millis(2 * self.0.settings.timing.election_max_ms);
        let changed = views.wait_for(|view| view.leader.is_some_and(|leader| leader != me));
        let leader = match tokio::time::timeout(limit, changed).await {
            Ok(Ok(view)) => view.leader,
            Ok(Err(_)) => return Err(ProposeError::Stopped),
            Err(_) => None,
        };
        match leader {
            Some(leader) if leader == to => Ok(()),
            Some(other) => Err(ProposeError::Unknown(format!("node {other} took over instead of node {to}"))),
            None => Err(ProposeError::Unknown(format!("node {to} did not take over"))),
        }
    }

    /// Sends a call of the node's own to another node and waits for its answer until the deadline.
    ///
    /// # Errors
    /// `TimedOut` after the deadline; otherwise what the connection or the other node said.
    pub async fn forward(&self, node: u64, payload: Bytes, deadline: Duration) -> io::Result<Bytes> {
        let membership = self.0.raft.metrics().borrow_watched().membership_config.clone();
        let known = membership.get_node(&node).or_else(|| self.0.settings.members.get(&node));
        let address = known.map(|member| member.peer.clone());
        let address = address.ok_or_else(|| io::Error::other(format!("node {node} is not a member")))?;
        network::forward(&self.0.network, (node, &address), payload, deadline).await
    }

    /// Writes a snapshot file now, and lets the log before it (but for the margin) go.
    ///
    /// # Errors
    /// [`ProposeError::Stopped`].
    pub async fn snapshot(&self) -> Result<(), ProposeError> {
        self.0.raft.trigger().snapshot().await.map_err(|_| ProposeError::Stopped)
    }

    /// A snapshot file of the state as it is now. The log is left as it is.
    ///
    /// # Errors
    /// Those of the disk; the node goes on.
    pub async fn backup(&self) -> io::Result<SnapshotFile> {
        self.0.shared.export().await
    }

    /// Stops Raft, writes a last checkpoint, and waits for the writers. The log and the state store can then be dropped.
    ///
    /// # Errors
    /// Those of the last checkpoint. Everything acknowledged is safe in the log all the same.
    pub async fn shutdown(&self) -> io::Result<()> {
        // An error here says that the core had stopped before; there is nothing more to stop.
        let _ = self.0.raft.shutdown().await;
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // It ends by the abort.
            let _ = task.await;
        }
        let written = if self.0.shared.fault.borrow().is_none() { self.0.shared.checkpoint().await } else { Ok(()) };
        let (done, closed) = awaited();
        self.0.shared.store.submit(Job::Close(done));
        let closed = closed.await;
        written.and(closed)
    }
}
