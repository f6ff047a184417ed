//! Calls that another node serves: they are passed on to the leader, and to the next one as soon as there is one.

use std::io;
use std::time::Duration;

use super::Node;
use super::forward::{Forward, Forwarded};
use super::lanes::Waiting;
use super::service::unexpected;
use crate::limits;
use crate::model::{Reply, Submission};
use crate::raft::View;
use crate::service::{Call, NotSent, Proof, ServiceError};

impl Node {
    /// Puts a command through the leader's log.
    pub(super) async fn submit_elsewhere(&self, call: Call) -> Result<Reply, ServiceError> {
        let Forwarded::Reply(reply) = self.pass_on(Forward::Submit(Box::new(call)), None).await? else {
            return Err(unexpected());
        };
        Ok(reply)
    }

    /// Passes a call to the leader; `wait_ms` is how long it may take there beyond a usual call.
    pub(super) async fn pass_on(&self, forward: Forward, wait_ms: Option<u64>) -> Result<Forwarded, ServiceError> {
        let wait = Duration::from_millis(limits::COMMIT_WAIT_MS_MAX + wait_ms.unwrap_or_default());
        let idempotent = matches!(forward, Forward::Settled { .. } | Forward::Query(_) | Forward::Status);
        // What callers ask again by itself. Whether a hand-over went well, only the old leader can say.
        let repeatable = idempotent || matches!(forward, Forward::Submit(_) | Forward::Renew(_));
        let payload = forward.encode();
        let mut leader = self.leader_elsewhere(None).await?;
        let mut views = self.core.consensus.watch();
        loop {
            // An answer may be long in coming, and never come: it is asked elsewhere as soon as another node leads.
            let replaced = async {
                let elsewhere = |view: &View| repeatable && view.leader.is_some_and(|now| now != leader);
                let replaced = views.wait_for(elsewhere).await.is_ok();
                if replaced && !idempotent {
                    // One that has just handed over still tells what became of it.
                    tokio::time::sleep(Duration::from_millis(limits::REPLACED_WAIT_MS)).await;
                }
            };
            let forwarded = tokio::select! {
                biased;
                forwarded = self.core.consensus.forward(leader, payload.clone(), wait) => forwarded,
                () = replaced => {
                    if idempotent {
                        return Err(self.not_sent(NotSent::NotLeader));
                    }
                    let why = format!("passed on to node {leader}, which leads no longer");
                    return Err(ServiceError::Unknown { why, leader: self.core.leader_hint() });
                }
            };
            match forwarded {
                Ok(bytes) => {
                    let answer = Forwarded::decode(&bytes)?;
                    return if let Forwarded::Error(error) = answer { Err(error) } else { Ok(answer) };
                }
                // The leader is gone and has heard nothing of this: the next one is asked as soon as there is one.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    leader = self.leader_elsewhere(Some(leader)).await?;
                }
                // A question changes nothing: whatever broke, it may be repeated.
                Err(_) if idempotent => return Err(self.not_sent(NotSent::NotLeader)),
                Err(error) => return Err(ServiceError::unknown(format!("passed on to node {leader}: {error}"))),
            }
        }
    }

    /// The leader, if it is another node; waits a moment where nobody leads but one that is `gone`, so that a caller need
    /// not poll.
    async fn leader_elsewhere(&self, gone: Option<u64>) -> Result<u64, ServiceError> {
        let mut views = self.core.consensus.watch();
        let known =
            views.wait_for(|view| view.leader.is_some_and(|leader| gone != Some(leader)) || view.fatal.is_some());
        let wait = Duration::from_millis(limits::LEADER_WAIT_MS);
        let leader = match tokio::time::timeout(wait, known).await {
            Ok(Ok(view)) => view.leader,
            Ok(Err(_)) => return Err(ServiceError::Stopping),
            Err(_) => None,
        };
        leader
            .filter(|leader| ![Some(self.core.id), gone].contains(&Some(*leader)))
            .ok_or_else(|| self.not_sent(NotSent::NoLeader))
    }
}

/// Passes on what waited when this node, handing leadership over, led no longer. Its callers were told nothing yet, and hear
/// from the next leader what became of it. Each is on its way by itself, as if its caller had asked there: they may change
/// places.
pub(super) async fn pass_on_left(node: Node) {
    let mut stop = node.core.stop.subscribe();
    loop {
        tokio::select! {
            biased;
            () = node.core.lanes.left.notified() => {}
            stopped = stop.wait_for(|stop| *stop) => { stopped.ok(); return }
        }
        for Waiting { what: Submission { principal, since, command }, answer } in node.core.lanes.take_left() {
            let (node, call) = (node.clone(), Call { principal, proof: Proof::Trusted, age_ms: 0, since, command });
            node.clone().own(async move {
                answer.send(node.submit_elsewhere(call).await).ok();
            });
        }
    }
}
