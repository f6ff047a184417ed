//! The encoding of log payloads and memberships, which is the same in the log on disk and in messages.
//!
//! No type of openraft is encoded. An entry is a frame of the codec, a membership is a frame around a structure of this
//! module, and a blank entry is one byte. The first byte distinguishes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::damaged;
use super::types::{Proposal, RaftEntry, RaftMembership, RaftPayload, StoredMembership, from_log_id, to_log_id};
use crate::codec::{self, Kind};
use crate::model::Member;
use crate::storage::LogId;

/// First byte of a blank entry. Frames begin with their kind, which is never 0.
const BLANK: u8 = 0;

#[derive(Serialize, Deserialize)]
struct Members {
    configs: Vec<BTreeSet<u64>>,
    nodes: BTreeMap<u64, Member>,
}

/// The cluster that a state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The cluster's name.
    pub(super) cluster: String,
    /// The id by which the cluster's nodes recognize each other.
    pub(super) peers_id: u128,
}

/// The data of a head besides its records.
#[derive(Serialize, Deserialize)]
struct HeadMeta {
    origin: Origin,
    membership_at: Option<(u64, u64, u64)>,
    members: Members,
}

impl Members {
    fn of(membership: &RaftMembership) -> Self {
        let nodes = membership.nodes().map(|(id, member)| (*id, member.clone())).collect();
        Self { configs: membership.get_joint_config().clone(), nodes }
    }

    fn into_membership(self) -> io::Result<RaftMembership> {
        if self.configs.is_empty() && self.nodes.is_empty() {
            return Ok(RaftMembership::default());
        }
        RaftMembership::new(self.configs, self.nodes).map_err(|error| damaged(format!("a membership: {error}")))
    }
}

/// Encodes a payload. Entries are not encoded again: they were encoded when they were proposed.
pub(super) fn encode(payload: &RaftPayload) -> Bytes {
    match payload {
        RaftPayload::Blank => Bytes::from_static(&[BLANK]),
        RaftPayload::Normal(proposal) => proposal.bytes.clone(),
        RaftPayload::Membership(membership) => codec::encode_message(Kind::Membership, &Members::of(membership)),
    }
}

/// Decodes a payload. Entries remain bytes, because they are decoded when they are applied.
pub(super) fn decode(id: LogId, bytes: Bytes) -> io::Result<RaftEntry> {
    let payload = match bytes.first() {
        Some(&BLANK) if bytes.len() == 1 => RaftPayload::Blank,
        Some(&kind) if kind == Kind::Membership as u8 => {
            let members: Members = codec::decode_message(Kind::Membership, &bytes)
                .map_err(|error| damaged(format!("log entry {id}: membership: {error}")))?;
            RaftPayload::Membership(members.into_membership()?)
        }
        Some(&kind) if kind == Kind::Entry as u8 => {
            RaftPayload::Normal(Proposal { bytes, entry: None, listener: None })
        }
        Some(_) | None => return Err(damaged(format!("log entry {id}: {} bytes of no known kind", bytes.len()))),
    };
    Ok(RaftEntry { log_id: from_log_id(id), payload })
}

/// Encodes the data of a head besides its records: the cluster that the state belongs to, the current membership, and
/// the id of the entry that set it.
pub(super) fn encode_head_meta(origin: &Origin, stored: &StoredMembership) -> Bytes {
    let at = stored.log_id().as_ref().map(to_log_id).map(|id| (id.term, id.node, id.index));
    let (origin, members) = (origin.clone(), Members::of(stored.membership()));
    codec::encode_message(Kind::Head, &HeadMeta { origin, membership_at: at, members })
}

/// Decodes the data of a head besides its records: the cluster that the state belongs to, and its membership. An empty
/// head has neither.
pub(super) fn decode_head_meta(bytes: &[u8]) -> io::Result<(Option<Origin>, StoredMembership)> {
    if bytes.is_empty() {
        return Ok((None, StoredMembership::default()));
    }
    let meta: HeadMeta =
        codec::decode_message(Kind::Head, bytes).map_err(|error| damaged(format!("a head: {error}")))?;
    let at = meta.membership_at.map(|(term, node, index)| from_log_id(LogId { term, node, index }));
    Ok((Some(meta.origin), StoredMembership::new(at, meta.members.into_membership()?)))
}
