//! Tests of the Raft module: openraft's suite, and three nodes in one process over loopback.

mod bounds;
mod checkpoints;
mod cluster;
mod failure_detector;
mod hostile;
mod links;
mod lossy;
mod snapshots;
#[cfg(feature = "cli")]
mod strangers;
mod suite;
mod votes;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::limits;
use crate::machine::Applied;
use crate::model::{Command, Entry, LogTime, Member, Position, Principal, Submission, WallTime};
use crate::net::{Connection, Connector, PortTls, Target, accepted};
use crate::storage::{Head, MemoryState, MemoryWal, Recovered, Source};

/// Hooks that echo calls from other nodes and ignore everything else.
struct Deaf;

impl Hooks for Deaf {
    fn applied(&self, _: &Applied) {}
    fn installed(&self, _: Position) {}
    fn checkpointed(&self, _: Duration) {}
    fn stopped(&self, _: &str) {}
    fn forwarded(&self, _: Sender, payload: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>> {
        Box::pin(async move { if payload.is_empty() { Err("empty".to_owned()) } else { Ok(payload) } })
    }
}

fn nothing() -> Recovered {
    Recovered { head: Head::default(), records: Vec::new(), source: Source::Empty, note: None }
}

fn tick(stamp: u64) -> Entry {
    let command = Submission { principal: Principal::parse("tester").unwrap(), since: None, command: Command::Tick };
    Entry { stamp: LogTime(stamp), wall: WallTime(0), renewals: Vec::new(), commands: vec![command], digest: None }
}

struct Running {
    consensus: Consensus,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Three nodes and their storages, which survive a stop of their node.
struct Cluster {
    settings: RaftSettings,
    storages: BTreeMap<u64, (MemoryWal, MemoryState)>,
    running: BTreeMap<u64, Running>,
    dials: Arc<AtomicU64>,
    /// Number of nodes that were started, which is the process id of the newest one.
    started: u128,
    lossy: lossy::Lossy,
    /// TLS of each node; empty for plain text.
    tls: BTreeMap<u64, PortTls>,
}

impl Cluster {
    async fn start(adjust: impl FnOnce(&mut RaftSettings)) -> Self {
        Self::start_with(BTreeMap::new(), adjust).await
    }

    async fn start_with(tls: BTreeMap<u64, PortTls>, adjust: impl FnOnce(&mut RaftSettings)) -> Self {
        let mut members = BTreeMap::new();
        let mut listeners = BTreeMap::new();
        for node in 1..=3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = listener.local_addr().unwrap().to_string();
            members.insert(node, Member { client: String::new(), peer });
            listeners.insert(node, listener);
        }
        let timing = Timing { heartbeat_ms: 50, election_min_ms: 250, election_max_ms: 500 };
        let mut settings = RaftSettings {
            node: 0,
            disk: 0,
            process: 0,
            cluster: "test".to_owned(),
            peers_id: 42,
            members,
            timing,
            checkpoint_ms: limits::CHECKPOINT_MS,
            snapshot_log_bytes_min: limits::SNAPSHOT_LOG_BYTES_MIN,
            purge_margin_entries: limits::PURGE_MARGIN_ENTRIES,
            replication_lag_entries_max: limits::REPLICATION_LAG_ENTRIES_MAX,
        };
        adjust(&mut settings);
        let dials = Arc::default();
        let lossy = lossy::Lossy::default();
        let mut cluster =
            Self { settings, storages: BTreeMap::new(), running: BTreeMap::new(), dials, started: 0, lossy, tls };
        for (node, listener) in listeners {
            cluster.storages.insert(node, Default::default());
            cluster.run(node, listener).await;
        }
        for running in cluster.running.values() {
            running.consensus.initialize().await.unwrap();
        }
        cluster
    }

    fn connector(&self, node: u64) -> Connector {
        if let Some(tls) = self.tls.get(&node) {
            return tls.connector();
        }
        let (dials, lossy) = (Arc::clone(&self.dials), self.lossy.clone());
        let addresses: Vec<_> = self.settings.members.iter().map(|(id, member)| (*id, member.peer.clone())).collect();
        Connector::new(move |Target { address, .. }| {
            dials.fetch_add(1, Ordering::Relaxed);
            let to = addresses.iter().find(|(_, peer)| *peer == address).map_or(0, |(id, _)| *id);
            let lossy = lossy.clone();
            Box::pin(async move { Ok(Connection::new(lossy.dial(node, to, address).await?)) })
        })
    }

    async fn run(&mut self, node: u64, listener: TcpListener) {
        let (wal, state) = self.storages[&node].clone();
        let recovered = state.recover(&wal).unwrap();
        self.started += 1;
        let settings = RaftSettings { node, disk: u128::from(node), process: self.started, ..self.settings.clone() };
        let connector = self.connector(node);
        let tls = self.tls.get(&node).cloned();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let starting = async move {
            let (wal, state) = (Arc::new(wal), Arc::new(state));
            Consensus::start(settings, wal, state, &recovered, Arc::new(Deaf), connector).await
        };
        let consensus = runtime.spawn(starting).await.unwrap().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = consensus.clone();
        let server = runtime.spawn(async move {
            let ended = async { stopped.await.unwrap_or(()) };
            // A graceful shutdown would wait for the connections of running nodes, so this stops without it.
            tokio::select! {
                served = serving.serve(accepted(listener, tls), std::future::pending()) => served.unwrap(),
                () = ended => (),
            }
        });
        self.running.insert(node, Running { consensus, stop: Some(stop), server, runtime: Some(runtime) });
    }

    /// Ends a node like a process that is killed: when this returns, all its tasks have stopped, and all its sockets
    /// are closed.
    fn kill(&mut self, node: u64) {
        let mut running = self.running.remove(&node).unwrap();
        let runtime = running.runtime.take().unwrap();
        // A thread of a runtime must not wait for another runtime.
        let stopping = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(10)));
        stopping.join().unwrap();
        drop(running);
        let (_, state) = &self.storages[&node];
        state.crash();
    }

    async fn restart(&mut self, node: u64) {
        // A killed node closes its port a moment later.
        let listener = soon(async {
            loop {
                match TcpListener::bind(&self.settings.members[&node].peer).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        })
        .await;
        self.run(node, listener).await;
    }

    /// Starts a further node with an empty storage, and adds it as a learner.
    async fn add(&mut self, node: u64) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member { client: String::new(), peer: listener.local_addr().unwrap().to_string() };
        self.settings.members.insert(node, member.clone());
        self.storages.insert(node, Default::default());
        self.run(node, listener).await;
        let leader = self.leader().await;
        self.node(leader).change_membership(MembershipChange::AddLearner(node, member)).await.unwrap();
        self.caught_up(node).await;
    }

    async fn stop(&mut self, node: u64) {
        let mut running = self.running.remove(&node).unwrap();
        running.stop.take().unwrap().send(()).unwrap();
        (&mut running.server).await.unwrap();
        running.consensus.shutdown().await.unwrap();
        let (_, state) = &self.storages[&node];
        state.crash(); // It was closed; a start opens it again.
    }

    fn node(&self, node: u64) -> &Consensus {
        &self.running[&node].consensus
    }

    /// Waits until a running node leads and may serve, and returns its id.
    async fn leader(&self) -> u64 {
        let waits = self.running.iter().map(|(node, running)| {
            let mut views = running.consensus.watch();
            Box::pin(async move {
                views.wait_for(|view| view.own_term_applied).await.unwrap();
                *node
            })
        });
        soon(futures_util::future::select_all(waits)).await.0
    }

    /// Proposes an entry, with retries, until a leader has applied it.
    async fn propose(&self, stamp: u64) {
        loop {
            let leader = self.leader().await;
            match propose(self.node(leader), tick(stamp)).await {
                Ok(_) => return,
                Err(ProposeError::NotSent { .. } | ProposeError::Unknown(_)) => tokio::task::yield_now().await,
                Err(ProposeError::Stopped) => panic!("raft has stopped"),
            }
        }
    }

    /// Waits until the node has applied everything that the leader has applied.
    async fn caught_up(&self, node: u64) {
        let leader = self.leader().await;
        let goal = self.node(leader).machine(|machine| machine.applied());
        let mut views = self.node(node).watch();
        soon(views.wait_for(|view| view.applied >= Some(goal))).await.unwrap();
    }
}

/// Submits an entry in the current term and waits until it is applied.
async fn propose(node: &Consensus, entry: Entry) -> Result<Arc<Applied>, ProposeError> {
    let term = node.watch().borrow().term;
    node.submit(term, entry, None).await?.applied().await
}

/// Waits for at most 20 s, so that a test that hangs fails.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it should have happened by now")
}
