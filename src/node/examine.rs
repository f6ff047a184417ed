//! What a directory is, without a node.

use super::open::peers_id;
use crate::config::Config;
use crate::storage::{self, Claim, Examined, OpenError};

/// Reads what the directory of a node is, and changes nothing.
///
/// # Errors
/// It cannot be read, its identity is damaged, or it belongs to another node.
pub(crate) fn examine(config: &Config) -> Result<Examined, OpenError> {
    let Config { cluster, node, data, .. } = config;
    let claim = Claim { cluster: cluster.clone(), node: *node, peers_id: Some(peers_id(config)) };
    storage::examine(data, &claim)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::node::{Node, NodeOptions};

    fn config(data: &Path, peer: &str) -> Config {
        let text = format!(
            "cluster = \"harbour\"\nnode = 1\ndata = {data:?}\n[[member]]\nid = 1\n\
             client = \"127.0.0.1:1\"\npeer = \"{peer}\"\n"
        );
        Config::from_toml("n1.toml", &text, []).expect("a good config")
    }

    /// The directory of a node with the same name and id in a cluster of other founders is not this node's.
    #[tokio::test]
    async fn a_directory_of_other_founders_is_not_this_nodes() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("n1");
        let founded = config(&data, "127.0.0.1:2");
        let peer_listener = Some(std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let options = NodeOptions { peer_listener, ..NodeOptions::default() };
        Node::open_with(founded.clone(), options).await.expect("founded").close().await;
        assert!(examine(&founded).expect("this node's").founded);
        let other = examine(&config(&data, "127.0.0.1:3"));
        assert!(matches!(other, Err(OpenError::NotOurs { .. })), "{other:?}");
    }
}
