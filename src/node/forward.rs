//! Calls from node to node: any node serves any call by passing it to the leader.

use serde::{Deserialize, Serialize};

use crate::codec::{Kind, decode_message, encode_message};
use crate::model::{Announcement, DigestClaim, Query, QueryReply, Reply};
use crate::service::{Call, ClaimRef, MemberChange, RenewalCall, ServiceError, Status};

/// A call that another node passes on. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Forward {
    /// A command.
    Submit(Box<Call>),
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
    QueryReply(QueryReply),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::hostile::{attack, mended};
    use crate::model::{
        Claim, Command, FencingToken, LeaseRequestId, LockKey, LockName, LogTime, Namespace, Outcome, RenewalTarget,
        SessionId,
    };
    use crate::service::{NotSent, Proof};

    fn calls() -> Vec<Forward> {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").expect("a name") };
        let target = RenewalTarget::Session(SessionId::new(0, 3));
        let renewal = || RenewalCall { target: target.clone(), proof: Proof::Trusted, attempt: 7 };
        vec![
            Forward::Submit(Box::new(Call::new(Command::Tick))),
            Forward::Renew(vec![renewal(), renewal()]),
            Forward::Settled {
                claim: ClaimRef { lock: lock.clone(), claim: Claim::Lease(LeaseRequestId(5)) },
                wait_ms: 9,
            },
            Forward::Query(Query::Inspect { lock }),
            Forward::Transfer(2),
            Forward::Status,
            Forward::Hello,
            Forward::RaiseFeatures(2),
            Forward::ChangeMembers(MemberChange::Add { node: 4, client: "a:1".to_owned(), peer: "a:2".to_owned() }),
            Forward::Digests,
        ]
    }

    fn answers() -> Vec<Forwarded> {
        let reply =
            || Reply { recalled: vec![FencingToken::new(0, 7)], ..Reply::new(1, LogTime(2), Outcome::Withdrawn) };
        let unreachable = NotSent::Unreachable("a: refused".to_owned());
        vec![
            Forwarded::Reply(reply()),
            Forwarded::Replies(vec![reply(), reply()]),
            Forwarded::Transferred,
            Forwarded::Error(ServiceError::NotSent { why: unreachable, leader: None }),
            Forwarded::FeaturesRaised,
            Forwarded::MembersChanged,
            Forwarded::Digests(vec![DigestClaim { index: 4_096, digest: 5 }]),
        ]
    }

    /// Calls that one node passes to another, damaged anywhere under a checksum that fits: values or errors.
    #[test]
    fn hostile_calls_between_nodes_are_values_or_errors() {
        let calls: Vec<_> = calls().iter().map(|call| ("call".to_owned(), call.encode().to_vec())).collect();
        attack(4, &calls, |_, bytes| Forward::decode(&mended(bytes)).is_ok());
        let answers: Vec<_> = answers().iter().map(|answer| ("answer".to_owned(), answer.encode().to_vec())).collect();
        attack(5, &answers, |_, bytes| Forwarded::decode(&mended(bytes)).is_ok());
    }
}
