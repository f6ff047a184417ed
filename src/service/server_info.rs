//! What a node reports about itself to the servers that run on top of it.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::LeaderHint;
use crate::model::RefusedDeadlock;
use crate::net::ConnectionsMax;

/// What a server reports about its node in the first frame of each stream and on the web page, and how many connections
/// it accepts.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the cluster; `None` until this node has applied the entry that fixes it.
    pub cluster_id: watch::Receiver<Option<u128>>,
    /// Id of this node.
    pub node: u64,
    /// The leader, as this node sees it. A stream that began under another leader is ended with `move_to`.
    pub leader: watch::Receiver<Option<LeaderHint>>,
    /// Addresses of the members for clients. Each client gets them, so that it finds members that joined later.
    pub endpoints: watch::Receiver<Vec<String>>,
    /// Most connections of the node's ports.
    pub connections: ConnectionsMax,
    /// The last refused deadlocks, the newest last, each list of locks once. Every node has the same, as far as it has
    /// applied the log since it started.
    pub deadlocks: watch::Receiver<VecDeque<RefusedDeadlock>>,
}
