//! A whole cluster in one process, on free ports of loopback, for tests of applications and of this crate.
//!
//! Knows: node, rpc and the modules below them. Never: the servers of a real node, the command line.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lockkeeper::client::Client;
//! use lockkeeper::testing::Cluster;
//!
//! let cluster = Cluster::start(3, None).await?;
//! let client = Client::new(cluster.leader().await.service());
//! let guard = client.lock("nightly").acquire().await?;
//! guard.release().await?;
//! cluster.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! With a manual clock, a test controls to the millisecond how much log time passes, no matter how slow the machine is:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use lockkeeper::client::Client;
//! use lockkeeper::clock::ManualClock;
//! use lockkeeper::testing::{Cluster, ClusterOptions};
//!
//! let clock = Arc::new(ManualClock::new(7));
//! let options = ClusterOptions { clock: Some(clock.clone()), ..ClusterOptions::default() };
//! let cluster = Cluster::start_with(options).await?;
//! let client = Client::new(cluster.leader().await.service()).clock(clock.clone());
//! let lease = client.lease("nightly").duration(Duration::from_secs(60)).take().await?;
//! cluster.pass(&clock, Duration::from_secs(60)).await?;
//! assert_eq!(client.inspect("nightly").await?.value.holders.len(), 1, "held at its very end");
//! cluster.pass(&clock, Duration::from_millis(1)).await?;
//! assert_eq!(client.inspect("nightly").await?.value.holders.len(), 0);
//! # drop(lease);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::{Clock, ManualClock};
use crate::config::{Config, Listen, Member, Profile};
use crate::limits::LOG_TIME_CAP_MS_MIN;
use crate::model::{Command, Handle, Invalid, LockKey, LockName, Namespace};
use crate::node::{Node, NodeOptions, OpenNodeError};
use crate::rpc;
use crate::service::{Call, LockService, ServiceError};

/// Real nodes in one process: consensus over sockets, and logs on disk if a directory is given. Dropping the cluster
/// stops the nodes at once; [`close`](Self::close) stops them in order.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    endpoints: Vec<String>,
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
}

/// Options of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Number of nodes, 3 by default. A single node has no elections.
    pub nodes: u64,
    /// Directory of the data; without one, data is kept in memory.
    pub directory: Option<PathBuf>,
    /// The clock of log time on every node; the clock of the system by default. Elections and timeouts always use the
    /// clock of the system.
    pub clock: Option<Arc<dyn Clock>>,
    /// File of principals and rules, the same for all nodes; without one, every caller may do everything.
    pub auth: Option<PathBuf>,
    /// Directory of the audit logs, in which that of node 1 is `n1.jsonl`; without one, none are written.
    pub audit: Option<PathBuf>,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A node did not open.
    #[error(transparent)]
    Node(#[from] OpenNodeError),
    /// A port of the loopback interface cannot be opened or served.
    #[error("a port of the cluster cannot be served: {0}")]
    Port(#[from] std::io::Error),
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { nodes: 3, directory: None, clock: None, auth: None, audit: None }
    }
}

impl Cluster {
    /// Starts this number of nodes with the timing for loopback. Without a directory, data is kept in memory.
    pub async fn start(nodes: u64, directory: Option<&Path>) -> Result<Self, StartError> {
        let directory = directory.map(Path::to_owned);
        Self::start_with(ClusterOptions { nodes, directory, ..ClusterOptions::default() }).await
    }

    /// Starts a cluster with the timing for loopback.
    pub async fn start_with(options: ClusterOptions) -> Result<Self, StartError> {
        let ClusterOptions { nodes, directory, clock, auth, audit } = options;
        let sockets = (0..nodes).map(|_| Ok((listener()?, listener()?))).collect::<std::io::Result<Vec<_>>>()?;
        let mut members = BTreeMap::new();
        for (id, (client, peer)) in (1..).zip(&sockets) {
            let member = Member { client: client.local_addr()?.to_string(), peer: peer.local_addr()?.to_string() };
            members.insert(id, member);
        }
        let endpoints = members.values().map(|member| member.client.clone()).collect();
        let mut cluster =
            Self { nodes: Vec::new(), endpoints, stop: watch::Sender::new(false), servers: JoinSet::new() };
        for (id, (client, peer)) in (1..).zip(sockets) {
            let listen = Listen { client: client.local_addr()?, peer: peer.local_addr()?, http: None };
            let config = Config {
                data: directory.as_ref().map(|directory| directory.join(format!("n{id}"))).unwrap_or_default(),
                members: members.clone(),
                timing: Profile::Fast.timing(),
                auth: auth.clone(),
                audit: audit.as_ref().map(|directory| directory.join(format!("n{id}.jsonl"))),
                ..Config::new("testing", id, listen)
            };
            let mut options =
                NodeOptions { ephemeral: directory.is_none(), peer_listener: Some(peer), ..NodeOptions::default() };
            if let Some(clock) = &clock {
                options.clock = Arc::clone(clock);
            }
            let node = Node::open_with(config, options).await?;
            cluster.serve(&node, client)?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    fn serve(&mut self, node: &Node, listener: TcpListener) -> Result<(), StartError> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stop = self.stop.subscribe();
        let routes = rpc::routes(node.service(), node.info(), stop.clone()).map_err(std::io::Error::other)?;
        self.servers.spawn(async move {
            if let Err(error) = rpc::serve(routes, listener, None, stop).await {
                tracing::error!(%error, "a server ended");
            }
        });
        Ok(())
    }

    /// The addresses at which clients reach the nodes over gRPC.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The nodes, in the order of their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Waits until a node leads, and returns it. Never returns if all nodes have stopped.
    pub async fn leader(&self) -> Node {
        // Subscribed before the first check, so that no change is missed between a check and the wait for the next one.
        let mut views: Vec<_> = self.nodes.iter().map(Node::views).collect();
        loop {
            // A closed node may consider itself the leader for a while. A node that has not applied the first entry of
            // the cluster answers no client.
            let founded = |node: &Node| node.info().cluster_id.borrow().is_some();
            let leads = |node: &&Node| node.leads() && founded(node) && !*node.closing().borrow();
            if let Some(node) = self.nodes.iter().find(leads) {
                return node.clone();
            }
            if views.is_empty() {
                return std::future::pending().await;
            }
            let changes = views.iter_mut().map(|view| Box::pin(view.changed()));
            let (changed, which, _) = futures_util::future::select_all(changes).await;
            // A node that has stopped will not lead.
            if changed.is_err() {
                views.remove(which);
            }
        }
    }

    /// Waits until a node leads, and returns a follower.
    pub async fn follower(&self) -> Node {
        let leader = self.leader().await.id();
        let follower = self.nodes.iter().find(|node| node.id() != leader);
        follower.unwrap_or(&self.nodes[0]).clone()
    }

    /// Advances log time on a cluster that was started with this clock, and returns when this time has passed. The
    /// result is exact to the millisecond if the same node leads all the time. Log time advances in small steps, each
    /// with a log entry: a quarter of an hour needs about 2,000 entries and a few seconds.
    ///
    /// # Errors
    /// Returns the error of the first step that the cluster did not answer. The steps before it took effect.
    pub async fn pass(&self, clock: &ManualClock, time: Duration) -> Result<(), ServiceError> {
        let longest = Duration::from_millis(LOG_TIME_CAP_MS_MIN);
        let mut left = time;
        let mut leader = self.leader().await;
        while !left.is_zero() {
            let step = left.min(longest);
            clock.advance(step);
            left -= step;
            // The cluster refuses this command, and the refusal has its own log entry with a time stamp.
            let (lock, handle) = (free_lock()?, Handle::from_random(0));
            match leader.submit(Call::new(Command::DropLease { lock, handle })).await {
                Ok(_) | Err(ServiceError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            if !leader.leads() {
                leader = self.leader().await;
            }
        }
        Ok(())
    }

    /// Stops the nodes in order: clients are moved to other nodes, logs and files are closed.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        while self.servers.join_next().await.is_some() {}
        for node in &self.nodes {
            node.close().await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter().for_each(Node::abort);
    }
}

fn free_lock() -> Result<LockKey, Invalid> {
    Ok(LockKey { namespace: Namespace::default(), name: LockName::parse("a-free-lock")? })
}

fn listener() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake};

    use super::*;
    use crate::model::Query;
    use crate::service::Freshness;

    /// Counts how often a task would be polled again.
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A dropped cluster leaves nothing running, although a handle on a node remains. Calls of that handle fail.
    #[tokio::test]
    async fn a_dropped_cluster_stops() {
        let cluster = Cluster::start(1, None).await.expect("a cluster");
        let node = cluster.leader().await;
        let mut views = node.views();
        drop(cluster);
        let ends = async { while views.changed().await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(30), ends).await.expect("the node ends");
        assert!(*node.closing().borrow());
        let free = Command::DropLease { lock: free_lock().expect("legal"), handle: Handle::from_random(0) };
        let calls =
            async { tokio::join!(node.submit(Call::new(free)), node.query(Query::Totals, Freshness::Linearizable)) };
        let answered = tokio::time::timeout(Duration::from_secs(60), calls).await;
        let (submitted, read) = answered.expect("no call waits for a node that has stopped");
        assert!(submitted.is_err() && read.is_err(), "{submitted:?} {read:?}");
    }

    /// A wait for a leader among stopped nodes uses no CPU time: no poll wakes its own task.
    #[tokio::test]
    async fn a_stopped_node_is_not_asked_again_and_again() {
        let cluster = Cluster::start(1, None).await.expect("a cluster");
        let node = cluster.leader().await;
        node.close().await;
        let mut views = node.views();
        let ends = async { while views.changed().await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(30), ends).await.expect("the node ends");
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Arc::clone(&wakes).into();
        let mut leader = std::pin::pin!(cluster.leader());
        assert!(leader.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(wakes.0.load(SeqCst), 0);
    }
}
