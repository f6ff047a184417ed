//! What operators ask of the whole cluster.

use serde::{Deserialize, Serialize};

use super::MemberChange;

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
