//! The cluster's state.

use super::part::{bytes_of, known, read_u128, required, unknown};
use crate::model::{Invalid, LogTime, Totals};
use crate::rpc::pb;
use crate::service::{NodeStatus, Role, Status};

impl From<&Status> for pb::StatusReply {
    fn from(status: &Status) -> Self {
        Self {
            cluster: status.cluster.clone(),
            cluster_id: bytes_of(status.cluster_id),
            node: status.node,
            leader: status.leader,
            term: status.term,
            log_time_ms: status.log_time.0,
            applied: status.applied,
            nodes: status.nodes.iter().map(Into::into).collect(),
            totals: Some((&status.totals).into()),
            ttl_ms_min: status.ttl_ms_min,
            ttl_ms_max: status.ttl_ms_max,
            features: status.features,
        }
    }
}

impl TryFrom<pb::StatusReply> for Status {
    type Error = Invalid;
    fn try_from(status: pb::StatusReply) -> Result<Self, Invalid> {
        Ok(Self {
            cluster: status.cluster,
            cluster_id: read_u128("cluster_id", &status.cluster_id)?,
            node: status.node,
            leader: status.leader,
            term: status.term,
            log_time: LogTime(status.log_time_ms),
            applied: status.applied,
            nodes: status.nodes.into_iter().map(NodeStatus::try_from).collect::<Result<_, _>>()?,
            totals: required("totals", status.totals)?.into(),
            ttl_ms_min: status.ttl_ms_min,
            ttl_ms_max: status.ttl_ms_max,
            features: status.features,
        })
    }
}

impl From<&NodeStatus> for pb::NodeStatus {
    fn from(node: &NodeStatus) -> Self {
        let role = match node.role {
            Role::Leader => pb::Role::Leader,
            Role::Follower => pb::Role::Follower,
            Role::Learner => pb::Role::Learner,
        };
        Self {
            id: node.id,
            role: role.into(),
            client: node.client.clone(),
            peer: node.peer.clone(),
            http: node.http.clone(),
            applied: node.applied,
            healthy: node.healthy,
            version: node.version.clone(),
            features: node.features,
        }
    }
}

impl TryFrom<pb::NodeStatus> for NodeStatus {
    type Error = Invalid;
    fn try_from(node: pb::NodeStatus) -> Result<Self, Invalid> {
        let role = match known::<pb::Role>("role", node.role)? {
            pb::Role::Unspecified => return Err(unknown("role", "unspecified")),
            pb::Role::Leader => Role::Leader,
            pb::Role::Follower => Role::Follower,
            pb::Role::Learner => Role::Learner,
        };
        Ok(Self {
            id: node.id,
            role,
            client: node.client,
            peer: node.peer,
            http: node.http,
            applied: node.applied,
            healthy: node.healthy,
            version: node.version,
            features: node.features,
        })
    }
}

impl From<&Totals> for pb::Totals {
    fn from(totals: &Totals) -> Self {
        let Totals { sessions, locks, holders, waiters, grants } = *totals;
        Self { sessions, locks, holders, waiters, grants }
    }
}

impl From<pb::Totals> for Totals {
    fn from(totals: pb::Totals) -> Self {
        let pb::Totals { sessions, locks, holders, waiters, grants } = totals;
        Self { sessions, locks, holders, waiters, grants }
    }
}
