//! What operators ask of the whole cluster.

use serde::{Deserialize, Serialize};

/// A request of an operator. The leader executes it, and answers once it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Transfer leadership to the node with this id. The answer comes once that node leads.
    Transfer(u64),
    /// Raise the cluster's feature level, which can never be lowered. Refused if a voter does not support the level.
    RaiseFeatures(u32),
    /// Change the members of the cluster. Refused if it would cost the quorum.
    ChangeMembers(MemberChange),
}

/// A change of the cluster's members. Repeating it changes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// Adds a node that receives the log and has no vote. Its id must never have been used in this cluster.
    Add {
        /// Id of the new node.
        node: u64,
        /// Address of the node for clients: `host:port`.
        client: String,
        /// Address of the node for other nodes: `host:port`.
        peer: String,
    },
    /// Gives a vote to a node that has caught up; another voter can be removed in the same step.
    Promote {
        /// Node that gets the vote.
        node: u64,
        /// Voter that leaves the cluster.
        instead_of: Option<u64>,
    },
    /// Removes a node. Its id can never be used again.
    Remove {
        /// Node that leaves the cluster.
        node: u64,
    },
}
