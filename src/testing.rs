//! A whole cluster inside one process, on free ports of loopback, for the tests of applications and our own.
//!
//! Knows: node, rpc and what is below them. Never: servers for people, the command line.
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

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{Config, Listen, Member, Profile};
use crate::node::{Node, NodeOptions, OpenNodeError};
use crate::rpc::{self, ServerInfo};

/// Nodes that are real but for the process boundary: consensus over sockets, logs on disk where a directory is given.
/// Dropping it ends them at once; [`close`](Self::close) ends them as a planned stop does.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    endpoints: Vec<String>,
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
}

impl Cluster {
    /// Starts so many nodes with the timing of loopback. Without a directory nothing is kept.
    pub async fn start(nodes: u64, directory: Option<&Path>) -> Result<Self, OpenNodeError> {
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
                cluster: "testing".to_owned(),
                cluster_id: None,
                node: id,
                data: directory.map(|directory| directory.join(format!("n{id}"))).unwrap_or_default(),
                listen,
                members: members.clone(),
                timing: Profile::Fast.timing(),
                log_level: "warn".to_owned(),
                rates: crate::config::Rates::default(),
            };
            let options =
                NodeOptions { ephemeral: directory.is_none(), peer_listener: Some(peer), ..NodeOptions::default() };
            let node = Node::open_with(config, options).await?;
            cluster.serve(&node, client).await?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    async fn serve(&mut self, node: &Node, listener: TcpListener) -> Result<(), OpenNodeError> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (cluster, cluster_id) = node.cluster();
        let info = ServerInfo {
            cluster: cluster.to_owned(),
            cluster_id,
            node: node.id(),
            leader: node.leaders(),
            endpoints: node.endpoints(),
        };
        let stop = self.stop.subscribe();
        let routes = rpc::routes(node.service(), info, stop.clone(), None).await.map_err(std::io::Error::other)?;
        self.servers.spawn(async move {
            if let Err(error) = rpc::serve(routes, listener, stop).await {
                tracing::error!(%error, "a server ended");
            }
        });
        Ok(())
    }

    /// Where clients reach the nodes over gRPC.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The nodes, in the order of their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node that leads; waits until one does.
    pub async fn leader(&self) -> Node {
        loop {
            if let Some(node) = self.nodes.iter().find(|node| node.leads()) {
                return node.clone();
            }
            let mut views: Vec<_> = self.nodes.iter().map(Node::views).collect();
            let changes = views.iter_mut().map(|view| Box::pin(view.changed()));
            // A node that has stopped will not lead; the others are still awaited in the next round.
            let _ = futures_util::future::select_all(changes).await;
        }
    }

    /// A node that follows; waits until one leads.
    pub async fn follower(&self) -> Node {
        let leader = self.leader().await.id();
        let follower = self.nodes.iter().find(|node| node.id() != leader);
        follower.unwrap_or(&self.nodes[0]).clone()
    }

    /// Stops the nodes as a planned stop does: clients are sent elsewhere, logs and files are closed.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        while self.servers.join_next().await.is_some() {}
        for node in &self.nodes {
            node.close().await;
        }
    }
}

fn listener() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}
