//! Who a node is, for the servers in front of it.

use tokio::sync::watch;

use super::LeaderHint;

/// What a node says of itself when a stream opens.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// The cluster's name.
    pub cluster: String,
    /// Its id; `None` until this node has applied the entry that fixes it.
    pub cluster_id: watch::Receiver<Option<u128>>,
    /// This node.
    pub node: u64,
    /// Who leads, as this node sees it. When it changes away from who led when a stream began, that stream is ended
    /// with `move_to`.
    pub leader: watch::Receiver<Option<LeaderHint>>,
    /// Where clients reach the members; told to each client, so that it finds those that came later.
    pub endpoints: watch::Receiver<Vec<String>>,
}
