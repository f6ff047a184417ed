//! Calls from node to node: any node serves any call by passing it to the leader, once.

use serde::{Deserialize, Serialize};

use crate::codec::{Kind, decode_message, encode_message};
use crate::model::{Announcement, Answered, DigestClaim, Query, Reply};
use crate::service::{Call, ClaimRef, MemberChange, RenewalCall, ServiceError, Status};

/// A call that another node passes on. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Forward {
    /// A command.
    Submit(Call),
    /// Renewals.
    Renew(Vec<RenewalCall>),
    /// Where a claim stands, at the latest after so long.
    Settled {
        /// Which claim.
        claim: ClaimRef,
        /// In milliseconds.
        wait_ms: u64,
    },
    /// A linearizable question.
    Query(Query),
    /// Hand leadership to this node.
    Transfer(u64),
    /// How the cluster is.
    Status,
    /// What the asked node says of itself: answered by every node, leader or not.
    Hello,
    /// Raise the feature level.
    RaiseFeatures(u32),
    /// Change the members.
    ChangeMembers(MemberChange),
    /// Which digests of its state the asked node remembers: answered by every node, leader or not.
    Digests,
}

/// The leader's answer. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Forwarded {
    /// To a command, or to a claim.
    Reply(Reply),
    /// To renewals.
    Replies(Vec<Reply>),
    /// To a question.
    Answered(Answered),
    /// Leadership was handed over.
    Transferred,
    /// It went wrong there.
    Error(ServiceError),
    /// How the cluster is, as the leader sees it.
    Status(Status),
    /// What the asked node says of itself.
    Hello(Announcement),
    /// The feature level was raised.
    FeaturesRaised,
    /// The members were changed.
    MembersChanged,
    /// Which digests of its state the asked node remembers.
    Digests(Vec<DigestClaim>),
}

impl Forward {
    pub(super) fn encode(&self) -> bytes::Bytes {
        encode_message(Kind::Call, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        decode_message(Kind::Call, bytes).map_err(|error| format!("a call that this build cannot read: {error}"))
    }
}

impl Forwarded {
    pub(super) fn encode(&self) -> bytes::Bytes {
        encode_message(Kind::Answer, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ServiceError> {
        decode_message(Kind::Answer, bytes)
            .map_err(|error| ServiceError::unknown(format!("an answer that this build cannot read: {error}")))
    }
}
