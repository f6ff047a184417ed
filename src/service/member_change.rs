//! Who belongs to the cluster, and how that is changed.

use serde::{Deserialize, Serialize};

/// A change of the cluster's members. Repeated, it changes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// A node that receives the log and has no vote. Its id was never used in this cluster.
    Add {
        /// Its id.
        node: u64,
        /// Where clients reach it: `host:port`.
        client: String,
        /// Where the other nodes reach it: `host:port`.
        peer: String,
    },
    /// A node that has caught up gets a vote; another one may lose its place in the same step.
    Promote {
        /// Which node.
        node: u64,
        /// Who is no member any more.
        instead_of: Option<u64>,
    },
    /// A node is no member any more; its id never comes back.
    Remove {
        /// Which node.
        node: u64,
    },
}
