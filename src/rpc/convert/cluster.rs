//! The cluster's state.

use super::part::{bytes_of, known, read_u128, required, unknown};
use crate::model::{Invalid, LogTime, Totals};
use crate::rpc::pb;
use crate::service::{MemberChange, NodeStatus, Role, Status};

impl From<&Status> for pb::StatusReply {
    fn from(status: &Status) -> Self {
        Self {
            cluster: status.cluster.clone(),
            cluster_id: status.cluster_id.map(bytes_of).unwrap_or_default(),
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
            heartbeat_ms: status.timing_ms[0],
            election_min_ms: status.timing_ms[1],
            election_max_ms: status.timing_ms[2],
            closed_ms: status.closed_ms,
            peers_id: bytes_of(status.peers_id),
        }
    }
}

impl TryFrom<pb::StatusReply> for Status {
    type Error = Invalid;
    fn try_from(status: pb::StatusReply) -> Result<Self, Invalid> {
        Ok(Self {
            cluster: status.cluster,
            cluster_id: (!status.cluster_id.is_empty())
                .then(|| read_u128("cluster_id", &status.cluster_id))
                .transpose()?,
            peers_id: read_u128("peers_id", &status.peers_id)?,
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
            timing_ms: [status.heartbeat_ms, status.election_min_ms, status.election_max_ms],
            closed_ms: status.closed_ms,
        })
    }
}

impl From<&MemberChange> for pb::ChangeMembersRequest {
    fn from(change: &MemberChange) -> Self {
        use pb::change_members_request::Change;
        let change = match change.clone() {
            MemberChange::Add { node, client, peer } => Change::Add(pb::AddMember { node, client, peer }),
            MemberChange::Promote { node, instead_of } => Change::Promote(pb::PromoteMember { node, instead_of }),
            MemberChange::Remove { node } => Change::Remove(pb::RemoveMember { node }),
        };
        Self { change: Some(change) }
    }
}

impl TryFrom<pb::ChangeMembersRequest> for MemberChange {
    type Error = Invalid;
    fn try_from(request: pb::ChangeMembersRequest) -> Result<Self, Invalid> {
        use pb::change_members_request::Change;
        Ok(match required("change", request.change)? {
            Change::Add(pb::AddMember { node, client, peer }) => MemberChange::Add { node, client, peer },
            Change::Promote(pb::PromoteMember { node, instead_of }) => MemberChange::Promote { node, instead_of },
            Change::Remove(pb::RemoveMember { node }) => MemberChange::Remove { node },
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
