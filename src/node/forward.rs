//! Calls between nodes: a node that does not lead forwards calls to the leader, and to the next leader if that node is
//! gone.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Node;
use super::auth::Caller;
use super::proposer::lane::Waiting;
use crate::auth::Who;
use crate::codec::{Kind, decode_message, encode_message};
use crate::limits;
use crate::model::{Announcement, DigestClaim, Principal, Query, QueryReply, Reply, Submission};
use crate::raft::View;
use crate::service::{Call, ClaimRef, NotSent, Operation, Proof, RenewalCall, ServiceError, Status};

/// A call that one node sends to another. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Forward {
    /// Put a command through the log.
    Submit(Box<Call>),
    /// Renew sessions and leases.
    Renew(Vec<RenewalCall>),
    /// Wait for the outcome of a claim; answered with its current state after `wait_ms`.
    Settled {
        /// Claim to wait for.
        claim: ClaimRef,
        /// Longest wait, in milliseconds.
        wait_ms: u64,
    },
    /// Answer a linearizable query.
    Query(Query),
    /// Execute the request of an operator.
    Operate(Operation),
    /// Report the status of the cluster.
    Status,
    /// Report the asked node's announcement. Every node answers, leader or not.
    Hello,
    /// Report the state digests that the asked node remembers. Every node answers, leader or not.
    Digests,
    /// Serve a call of a principal, which the sender has proven.
    As {
        /// Principal of the caller.
        principal: Principal,
        /// The call, encoded; no other call of a principal.
        call: Vec<u8>,
    },
    /// Report when the first certificate of the asked node expires. Every node answers, leader or not.
    CertificateEnd,
}

/// The answer to a [`Forward`]. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Forwarded {
    /// Reply to a command or a claim.
    Reply(Reply),
    /// Replies to renewals.
    Replies(Vec<Reply>),
    /// Answer to a query.
    QueryReply(QueryReply),
    /// The request of an operator was executed.
    Operated,
    /// The call failed on the asked node.
    Error(ServiceError),
    /// Status of the cluster, as the leader sees it.
    Status(Status),
    /// Announcement of the asked node.
    Hello(Announcement),
    /// State digests that the asked node remembers.
    Digests(Vec<DigestClaim>),
    /// When the first certificate of the asked node expires, in seconds since 1970; `None` without TLS.
    CertificateEnd(Option<u64>),
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

impl Node {
    /// Sends a question to another node, which answers it whether it leads or not. `None` if no answer arrives in time.
    pub(super) async fn ask(&self, node: u64, question: &Forward, wait_ms: u64) -> Option<Forwarded> {
        let wait = Duration::from_millis(wait_ms);
        let answer = self.core.consensus.forward(node, question.encode(), wait).await.ok()?;
        Some(Forwarded::decode(&answer).unwrap_or_else(Forwarded::Error))
    }

    /// Puts a command through the leader's log.
    pub(super) async fn submit_to_leader(&self, call: Call) -> Result<Reply, ServiceError> {
        let Forwarded::Reply(reply) = self.send_to_leader(Forward::Submit(Box::new(call)), None).await? else {
            return Err(unexpected());
        };
        Ok(reply)
    }

    /// Forwards a call to the leader. Serves it here if this node is elected meanwhile. `wait_ms` is the time in
    /// milliseconds that the call may take there beyond the usual limit.
    pub(super) async fn send_to_leader(
        &self,
        forward: Forward,
        wait_ms: Option<u64>,
    ) -> Result<Forwarded, ServiceError> {
        let wait = Duration::from_millis(limits::COMMIT_WAIT_MS_MAX + wait_ms.unwrap_or_default());
        let idempotent = matches!(forward, Forward::Settled { .. } | Forward::Query(_) | Forward::Status);
        // Callers repeat these calls automatically. Only the old leader can report whether a transfer of leadership
        // succeeded.
        let repeatable = idempotent || matches!(forward, Forward::Submit(_) | Forward::Renew(_));
        let payload = match self.authorizer()? {
            Some(authorizer) => {
                Forward::As { principal: authorizer.principal, call: forward.encode().to_vec() }.encode()
            }
            None => forward.encode(),
        };
        let (mut gone, mut repeated) = (None, false);
        let mut views = self.core.consensus.watch();
        loop {
            let leader = self.next_leader(gone).await?;
            if leader == self.core.id {
                // A leader without followers stays without an answer, so that its clients ask other nodes.
                let serves = self.serves().await;
                return if serves {
                    answered(Box::pin(self.serve_forwarded(forward)).await)
                } else {
                    Err(self.not_sent(NotSent::NoLeader))
                };
            }
            // The answer may take long or never arrive. As soon as another node leads, the call goes there.
            let replaced = async {
                let elsewhere = |view: &View| repeatable && view.leader.is_some_and(|now| now != leader);
                let replaced = views.wait_for(elsewhere).await.is_ok();
                if replaced && !idempotent {
                    // A leader that has just transferred leadership may still report the outcome.
                    tokio::time::sleep(Duration::from_millis(limits::REPLACED_WAIT_MS)).await;
                }
            };
            let forwarded = tokio::select! {
                biased;
                forwarded = self.core.consensus.forward(leader, payload.clone(), wait) => forwarded,
                () = replaced => {
                    if idempotent {
                        continue;
                    }
                    let why = format!("forwarded to node {leader}, which no longer leads");
                    return Err(ServiceError::Unknown { why, leader: self.core.leader_hint() });
                }
            };
            match forwarded {
                Ok(bytes) => return answered(Forwarded::decode(&bytes)?).map_err(|error| self.noted("call", error)),
                // The leader is gone and never received this call: send it to the next leader as soon as there is one.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => gone = Some(leader),
                // A read changes nothing, so it may be repeated after any error.
                Err(_) if idempotent && !repeated => repeated = true,
                Err(_) if idempotent => return Err(self.not_sent(NotSent::NotLeader)),
                Err(error) => return Err(ServiceError::unknown(format!("forwarded to node {leader}: {error}"))),
            }
        }
    }

    /// Returns the leader. If no node leads, or only the node `gone`, waits a moment for the next leader, so that the
    /// caller need not poll.
    async fn next_leader(&self, gone: Option<u64>) -> Result<u64, ServiceError> {
        let mut views = self.core.consensus.watch();
        let known =
            views.wait_for(|view| view.leader.is_some_and(|leader| gone != Some(leader)) || view.fatal.is_some());
        let wait = Duration::from_millis(limits::LEADER_WAIT_MS);
        let leader = match tokio::time::timeout(wait, known).await {
            Ok(Ok(view)) => view.leader,
            Ok(Err(_)) => return Err(ServiceError::Stopping),
            Err(_) => None,
        };
        leader.filter(|leader| gone != Some(*leader)).ok_or_else(|| self.not_sent(NotSent::NoLeader))
    }
}

/// Separates the error of a call from its answer.
fn answered(answer: Forwarded) -> Result<Forwarded, ServiceError> {
    if let Forwarded::Error(error) = answer { Err(error) } else { Ok(answer) }
}

pub(super) fn unexpected() -> ServiceError {
    ServiceError::Internal("the leader answered another call".to_owned())
}

/// Forwards the commands that waited in the queue when this node, transferring leadership, stopped leading. Their
/// callers have no reply yet, and get it from the next leader. A separate task forwards each command, so the order of
/// the commands may change.
pub(super) async fn forward_unsent(node: Node) {
    loop {
        tokio::select! {
            biased;
            () = node.core.queue.unsent.notified() => {}
            () = node.core.stopped() => return,
        }
        for Waiting { what: Submission { principal, since, command }, answer, .. } in node.core.queue.take_unsent() {
            let caller = Caller { who: Who::Proven(principal.clone()), ..node.caller.clone() };
            let call = Call { principal, proof: Proof::Trusted, age_ms: 0, since, command };
            let node = Node { caller, ..node.clone() };
            node.clone().spawn(async move {
                answer.send(node.submit_to_leader(call).await).ok();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::hostile::{attack, with_checksum};
    use crate::model::{
        Claim, Command, FencingToken, LeaseRequestId, LockKey, LockName, LogTime, Namespace, Outcome, RenewalTarget,
        SessionId,
    };
    use crate::service::{MemberChange, NotSent, Proof};

    fn calls() -> Vec<Forward> {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").expect("a name") };
        let target = RenewalTarget::Session(SessionId::new(0, 3));
        let add = MemberChange::Add { node: 4, client: "a:1".to_owned(), peer: "a:2".to_owned() };
        let renewal = || RenewalCall { target: target.clone(), proof: Proof::Trusted, attempt: 7 };
        vec![
            Forward::Submit(Box::new(Call::new(Command::Tick))),
            Forward::Renew(vec![renewal(), renewal()]),
            Forward::Settled {
                claim: ClaimRef { lock: lock.clone(), claim: Claim::Lease(LeaseRequestId(5)) },
                wait_ms: 9,
            },
            Forward::Query(Query::Inspect { lock }),
            Forward::Operate(Operation::Transfer(2)),
            Forward::Status,
            Forward::Hello,
            Forward::Operate(Operation::RaiseFeatures(2)),
            Forward::Operate(Operation::ChangeMembers(add)),
            Forward::Digests,
            Forward::CertificateEnd,
            Forward::As { principal: Principal::local(), call: Forward::Status.encode().to_vec() },
        ]
    }

    fn answers() -> Vec<Forwarded> {
        let reply =
            || Reply { recalled: vec![FencingToken::new(0, 7)], ..Reply::new(1, LogTime(2), Outcome::Withdrawn) };
        let unreachable = NotSent::Unreachable("a: refused".to_owned());
        vec![
            Forwarded::Reply(reply()),
            Forwarded::Replies(vec![reply(), reply()]),
            Forwarded::Operated,
            Forwarded::Error(ServiceError::NotSent { why: unreachable, leader: None }),
            Forwarded::Digests(vec![DigestClaim { index: 4_096, digest: 5 }]),
            Forwarded::CertificateEnd(Some(1_900_000_000)),
        ]
    }

    /// Decoding a call between nodes returns a value or an error, even if any byte is damaged under a valid checksum.
    #[test]
    fn hostile_calls_between_nodes_are_values_or_errors() {
        let calls: Vec<_> = calls().iter().map(|call| ("call".to_owned(), call.encode().to_vec())).collect();
        attack(4, &calls, |_, bytes| Forward::decode(&with_checksum(bytes)).is_ok());
        let answers: Vec<_> = answers().iter().map(|answer| ("answer".to_owned(), answer.encode().to_vec())).collect();
        attack(5, &answers, |_, bytes| Forwarded::decode(&with_checksum(bytes)).is_ok());
    }
}
