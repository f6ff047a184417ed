//! What a directory is, without a node.

use crate::config::Config;
use crate::storage::{self, Claim, Examined, OpenError};

/// Reads what the directory of a node is, and changes nothing.
///
/// # Errors
/// It cannot be read, its identity is damaged, or it belongs to another node.
pub(crate) fn examine(config: &Config) -> Result<Examined, OpenError> {
    let Config { cluster, node, peers_id, data, .. } = config;
    let claim = Claim { cluster: cluster.clone(), node: *node, peers_id: *peers_id };
    storage::examine(data, &claim)
}
