//! The messages between nodes, as protobuf, and how they become the types of Raft and back.

use bytes::Bytes;
use openraft::raft::AppendEntriesRequest;
use tonic::Status;

use super::payload;
use super::types::{RaftEntry, RaftLogId, RaftVote, Types, from_log_id, from_vote, to_log_id, to_vote};
use crate::storage::{self, Head};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    tonic::include_proto!("lockkeeper.peer.v1");
}
pub(super) use generated::*;

/// Version of the messages between nodes.
pub(super) const VERSION: u32 = 1;

/// Who a node is, and what it tells of itself in each call.
#[derive(Debug, Clone, Copy)]
pub(super) struct SelfIdentity {
    pub(super) cluster_id: u128,
    pub(super) group_id: u64,
    pub(super) node: u64,
}

impl SelfIdentity {
    pub(super) fn header(&self, target: u64) -> Header {
        Header {
            version: VERSION,
            cluster_id: Bytes::copy_from_slice(&self.cluster_id.to_be_bytes()),
            group_id: self.group_id,
            sender: self.node,
            target,
        }
    }

    /// The sender, if the call is for this node of this cluster; otherwise what is wrong.
    pub(super) fn check(&self, header: Option<&Header>) -> Result<u64, Status> {
        let refused = |why: String| Err(Status::failed_precondition(why));
        let Some(header) = header else { return refused("a call without a header".to_owned()) };
        if header.version != VERSION {
            return refused(format!("version {} of the node protocol; this node speaks {VERSION}", header.version));
        }
        let Ok(cluster_id) = <[u8; 16]>::try_from(header.cluster_id.as_ref()).map(u128::from_be_bytes) else {
            return refused(format!("a cluster id of {} bytes", header.cluster_id.len()));
        };
        if (cluster_id, header.group_id) != (self.cluster_id, self.group_id) {
            return refused(format!(
                "node {} belongs to cluster {cluster_id:032x}, group {}; this is cluster {:032x}, group {}",
                header.sender, header.group_id, self.cluster_id, self.group_id
            ));
        }
        if header.target != self.node {
            return refused(format!("the call is for node {}; this is node {}", header.target, self.node));
        }
        if header.sender == self.node {
            return refused(format!("the call comes from another node {}, which is this node's id", self.node));
        }
        Ok(header.sender)
    }
}

pub(super) fn log_id(id: &RaftLogId) -> LogId {
    stored_log_id(&to_log_id(id))
}

pub(super) fn stored_log_id(id: &storage::LogId) -> LogId {
    LogId { term: id.term, node: id.node, index: id.index }
}

pub(super) fn read_stored_log_id(id: &LogId) -> storage::LogId {
    storage::LogId { term: id.term, node: id.node, index: id.index }
}

pub(super) fn read_log_id(id: &LogId) -> RaftLogId {
    from_log_id(read_stored_log_id(id))
}

pub(super) fn ballot(vote: &RaftVote) -> Ballot {
    let vote = to_vote(vote);
    Ballot { term: vote.term, node: vote.node, committed: vote.committed }
}

/// A vote that must be there.
pub(super) fn read_ballot(vote: Option<&Ballot>) -> Result<RaftVote, Status> {
    let vote = vote.ok_or_else(|| Status::invalid_argument("a message without its vote"))?;
    Ok(from_vote(storage::Vote { term: vote.term, node: vote.node, committed: vote.committed }))
}

pub(super) fn append(header: Header, request: &AppendEntriesRequest<Types>) -> AppendRequest {
    AppendRequest {
        header: Some(header),
        vote: Some(ballot(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id),
        entries: request.entries.iter().map(entry).collect(),
        committed: request.leader_commit.as_ref().map(log_id),
    }
}

pub(super) fn read_append(request: AppendRequest) -> Result<AppendEntriesRequest<Types>, Status> {
    Ok(AppendEntriesRequest {
        vote: read_ballot(request.vote.as_ref())?,
        prev_log_id: request.previous.as_ref().map(read_log_id),
        entries: request.entries.into_iter().map(read_entry).collect::<Result<_, _>>()?,
        leader_commit: request.committed.as_ref().map(read_log_id),
    })
}

pub(super) fn entry(entry: &RaftEntry) -> LogEntry {
    LogEntry { id: Some(log_id(&entry.log_id)), payload: payload::encode(&entry.payload) }
}

pub(super) fn read_entry(entry: LogEntry) -> Result<RaftEntry, Status> {
    let id = entry.id.as_ref().ok_or_else(|| Status::invalid_argument("a log entry without its id"))?;
    payload::decode(read_stored_log_id(id), entry.payload).map_err(|error| Status::invalid_argument(error.to_string()))
}

pub(super) fn announcement(header: Header, vote: &RaftVote, head: &Head) -> SnapshotAnnouncement {
    SnapshotAnnouncement {
        header: Some(header),
        vote: Some(ballot(vote)),
        last: head.log_id.as_ref().map(stored_log_id),
        records: head.records,
        digest: Bytes::copy_from_slice(&head.digest.to_be_bytes()),
        meta: head.meta.clone(),
    }
}

pub(super) fn read_head(announced: &SnapshotAnnouncement) -> Result<Head, Status> {
    let digest = <[u8; 16]>::try_from(announced.digest.as_ref())
        .map_err(|_| Status::invalid_argument("a snapshot digest that is not 16 bytes long"))?;
    Ok(Head {
        log_id: announced.last.as_ref().map(read_stored_log_id),
        records: announced.records,
        digest: u128::from_be_bytes(digest),
        meta: announced.meta.clone(),
    })
}
