//! The messages between nodes in protobuf, and their conversion to and from Raft's types.

use bytes::Bytes;
use openraft::raft::AppendEntriesRequest;
use tonic::Status;

use super::disk_ids::DiskIds;
use super::payload;
use super::types::{RaftEntry, RaftLogId, RaftVote, Types, from_log_id, from_vote, to_log_id, to_vote};
use crate::protobuf::{Refuse, TooMany};
use crate::storage::{self, Head};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    tonic::include_proto!("lockkeeper.peer.v1");

    pub(crate) type BoundedCodec<T, U> = crate::protobuf::BoundedCodec<T, U, super::InWords>;
}
pub(super) use generated::*;

/// The refusal of a message between nodes, as plain text.
pub(super) struct InWords;

impl Refuse for InWords {
    fn refuse(list: &TooMany) -> Status {
        Status::invalid_argument(list.to_string())
    }
}

pub(super) const VERSION: u32 = 1;

/// The identity of a node, which it sends in each call.
#[derive(Debug, Clone, Copy)]
pub(super) struct SelfIdentity {
    pub(super) peers_id: u128,
    pub(super) node: u64,
    pub(super) disk: u128,
    /// Random id of this process.
    pub(super) process: u128,
}

/// Why the header of a call was refused.
#[derive(Debug)]
pub(super) enum BadHeader {
    /// The call is not for this node of this cluster.
    NotForUs(String),
    /// The sender's disk id is not the one by which it is known.
    SenderWiped(u64),
    /// This node's disk id is not the one by which the sender knows it.
    ReceiverWiped,
}

impl SelfIdentity {
    /// The header of a call to `target`. `target_disk` is the disk id by which the target is known, if any.
    pub(super) fn header(&self, target: u64, target_disk: Option<u128>) -> Header {
        Header {
            version: VERSION,
            peers_id: bytes_of(self.peers_id),
            sender: self.node,
            target,
            disk: bytes_of(self.disk),
            target_disk: target_disk.map(bytes_of).unwrap_or_default(),
            process: bytes_of(self.process),
        }
    }

    /// Returns the sender if the call is for this node of this cluster and both have the disk ids by which they are
    /// known.
    pub(super) fn check(&self, header: Option<&Header>, disks: &DiskIds) -> Result<u64, BadHeader> {
        let header = header.ok_or_else(|| BadHeader::NotForUs("a call without a header".to_owned()))?;
        self.check_ids(header).map_err(BadHeader::NotForUs)?;
        let Some(disk) = read_u128(&header.disk) else {
            return Err(BadHeader::NotForUs(format!("a disk id of {} bytes", header.disk.len())));
        };
        if disks.differs(header.sender, disk) {
            return Err(BadHeader::SenderWiped(header.sender));
        }
        if !header.target_disk.is_empty() && read_u128(&header.target_disk) != Some(self.disk) {
            return Err(BadHeader::ReceiverWiped);
        }
        Ok(header.sender)
    }

    fn check_ids(&self, header: &Header) -> Result<(), String> {
        if header.version != VERSION {
            return Err(format!("version {} of the node protocol; this node speaks {VERSION}", header.version));
        }
        let Some(peers_id) = read_u128(&header.peers_id) else {
            return Err(format!("a peers_id of {} bytes", header.peers_id.len()));
        };
        if peers_id != self.peers_id {
            return Err(format!(
                "node {} belongs to another cluster (peers_id {peers_id:032x}); this is {:032x}",
                header.sender, self.peers_id
            ));
        }
        if header.target != self.node {
            return Err(format!("the call is for node {}; this is node {}", header.target, self.node));
        }
        if header.sender == self.node {
            return Err(format!("the call comes from another node {}, which is this node's id", self.node));
        }
        Ok(())
    }
}

pub(super) fn bytes_of(number: u128) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub(super) fn read_u128(bytes: &[u8]) -> Option<u128> {
    bytes.try_into().ok().map(u128::from_be_bytes)
}

/// Reads the sender's process, which a call of a leader must contain.
pub(super) fn process(header: Option<&Header>) -> Result<u128, Status> {
    read_process(header.map_or(&[], |header| &header.process))
}

pub(super) fn read_process(bytes: &[u8]) -> Result<u128, Status> {
    read_u128(bytes).ok_or_else(|| Status::invalid_argument(format!("a process id of {} bytes", bytes.len())))
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

/// Reads a vote that the message must contain.
pub(super) fn read_ballot(vote: Option<&Ballot>) -> Result<RaftVote, Status> {
    let vote = vote.ok_or_else(|| Status::invalid_argument("a message without its vote"))?;
    Ok(from_vote(storage::Vote { term: vote.term, node: vote.node, committed: vote.committed }))
}

/// Creates an append request. With `acknowledged`, it reports to the receiver what the receiver has acknowledged.
pub(super) fn append(
    header: Header,
    request: &AppendEntriesRequest<Types>,
    acknowledged: Option<storage::LogId>,
) -> AppendRequest {
    AppendRequest {
        header: Some(header),
        vote: Some(ballot(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id),
        entries: request.entries.iter().map(entry).collect(),
        committed: request.leader_commit.as_ref().map(log_id),
        acknowledged: acknowledged.as_ref().map(stored_log_id),
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

pub(super) fn announcement(header: Header, vote: &RaftVote, head: &Head, bytes: u64) -> SnapshotAnnouncement {
    SnapshotAnnouncement {
        header: Some(header),
        vote: Some(ballot(vote)),
        last: head.log_id.as_ref().map(stored_log_id),
        records: head.records,
        digest: bytes_of(head.digest),
        meta: head.meta.clone(),
        bytes,
    }
}

pub(super) fn read_head(announced: &SnapshotAnnouncement) -> Result<Head, Status> {
    let digest = read_u128(&announced.digest)
        .ok_or_else(|| Status::invalid_argument("a snapshot digest that is not 16 bytes long"))?;
    Ok(Head {
        log_id: announced.last.as_ref().map(read_stored_log_id),
        records: announced.records,
        digest,
        meta: announced.meta.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::model::{Announcement, Command, Entry, LogTime, Principal, Submission, WallTime};

    fn me(node: u64, disk: u128) -> SelfIdentity {
        SelfIdentity { peers_id: 42, node, disk, process: 0 }
    }

    /// The disk ids known to a node that has applied the announcements of nodes 1 and 2, whose disk ids are 11 and 22.
    fn known() -> DiskIds {
        let announcement = |node: u64| Announcement {
            node,
            disk: u128::from(node * 11),
            features: 1,
            version: String::new(),
            http: None,
            rules: None,
        };
        let commands = [1, 2].map(|node| Submission {
            principal: Principal::default(),
            since: None,
            command: Command::Announce(announcement(node)),
        });
        let (stamp, wall) = (LogTime(1), WallTime(0));
        let mut machine = Machine::new();
        machine.apply(1, &Entry { stamp, wall, renewals: vec![], commands: commands.into(), digest: None });
        let disks = DiskIds::default();
        disks.follow(&machine);
        disks
    }

    /// Calls between nodes with known disk ids are accepted. Calls are also accepted while a disk id is not known yet,
    /// because otherwise no cluster could be founded.
    #[test]
    fn known_and_unknown_disks_pass() {
        let (disks, no_disks) = (known(), DiskIds::default());
        let header = me(2, 22).header(1, disks.of(1));
        assert_eq!(me(1, 11).check(Some(&header), &disks).expect("known"), 2);
        let header = me(3, 99).header(1, no_disks.of(1));
        assert_eq!(me(1, 11).check(Some(&header), &disks).expect("not known yet"), 3);
        assert_eq!(me(1, 98).check(Some(&header), &no_disks).expect("no node is known yet"), 3);
    }

    /// A sender with another disk id than the known one is refused for every kind of call, and a receiver refuses calls
    /// for a disk id that it does not have.
    #[test]
    fn another_disk_is_refused_on_both_sides() {
        let disks = known();
        let header = me(2, 23).header(1, None);
        assert!(matches!(me(1, 11).check(Some(&header), &disks), Err(BadHeader::SenderWiped(2))));
        let header = me(2, 22).header(1, disks.of(1));
        assert!(matches!(me(1, 12).check(Some(&header), &DiskIds::default()), Err(BadHeader::ReceiverWiped)));
        let header = Header { disk: Bytes::new(), ..me(2, 22).header(1, None) };
        assert!(matches!(me(1, 11).check(Some(&header), &DiskIds::default()), Err(BadHeader::NotForUs(_))));
    }
}
