//! openraft's types with this crate's parameters, and their conversion to and from the storage module's types.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::impls::{BoxedErrorSource, InlineBatch, OneshotResponder};
use openraft::vote::{RaftLeaderId, leader_id_adv};
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};

use super::runtime::Runtime;
use crate::codec::{self, DecodeError};
use crate::machine::Applied;
use crate::model::{Entry, Member};
use crate::storage::{self, ReceivedSnapshot, SnapshotFile};

/// An entry in Raft. The leader encodes it once for disk and messages, and each node decodes it at most once.
#[derive(Clone)]
pub(super) struct Proposal {
    /// The encoded entry, as in the log.
    pub(super) bytes: Bytes,
    /// The decoded entry, if this node has it: the leader that proposed the entry does.
    pub(super) entry: Option<Arc<Entry>>,
    /// The listener of the proposer, on the leader that proposed the entry.
    pub(super) listener: Option<Arc<dyn Listener>>,
}

/// A callback that receives the results of an entry's commands while the entry is applied.
pub trait Listener: Send + Sync + 'static {
    /// Called after each command with the results of all commands so far. These results are final. The state is locked
    /// during the call, so the function must be short and must not read the state.
    fn decided(&self, so_far: &Applied);
}

impl Proposal {
    pub(super) fn new(entry: Entry, listener: Option<Arc<dyn Listener>>) -> Self {
        Self { bytes: codec::encode_entry(&entry), entry: Some(Arc::new(entry)), listener }
    }

    pub(super) fn decoded(self) -> Result<Arc<Entry>, DecodeError> {
        match self.entry {
            Some(entry) => Ok(entry),
            None => codec::decode_entry(&self.bytes).map(Arc::new),
        }
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry of {} bytes", self.bytes.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The configuration of openraft: all its type parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Types;

/// A snapshot to send or to install.
pub(super) enum SnapshotData {
    /// The newest snapshot file of this node. It is not deleted while this value exists.
    File(SnapshotFile),
    /// A received and verified file with a temporary name.
    Received(ReceivedSnapshot),
}

pub(super) type LeaderId = leader_id_adv::LeaderId<u64, u64>;
pub(super) type RaftVote = openraft::Vote<LeaderId>;
pub(super) type RaftLogId = openraft::LogId<LeaderId>;
pub(super) type RaftMembership = openraft::Membership<u64, Member>;
pub(super) type StoredMembership = openraft::StoredMembership<LeaderId, u64, Member>;
pub(super) type RaftPayload = EntryPayload<Proposal, u64, Member>;
pub(super) type RaftEntry = openraft::Entry<LeaderId, RaftPayload>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<LeaderId, u64, Member>;
pub(super) type Snapshot = openraft::Snapshot<LeaderId, u64, Member, SnapshotData>;

impl RaftTypeConfig for Types {
    type D = Proposal;
    type R = Option<Arc<Applied>>;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = RaftVote;
    type Payload = RaftPayload;
    type Entry = RaftEntry;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = OneshotResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(super) fn to_log_id(id: &RaftLogId) -> storage::LogId {
    storage::LogId { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
}

pub(super) fn from_log_id(id: storage::LogId) -> RaftLogId {
    RaftLogId::new(LeaderId::new(id.term, id.node), id.index)
}

pub(super) fn to_vote(vote: &RaftVote) -> storage::Vote {
    storage::Vote { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
}

pub(super) fn from_vote(vote: storage::Vote) -> RaftVote {
    RaftVote { leader_id: LeaderId::new(vote.term, vote.node), committed: vote.committed }
}
