//! Waits for the outcome of a claim, here or at the leader.

use std::time::Duration;

use super::Node;
use super::auth::{Auth, changed};
use super::forward::{Forward, Forwarded, unexpected};
use crate::limits;
use crate::model::{LockKey, Outcome, Query, QueryReply, QueryResult, Refusal, Reply};
use crate::service::{ClaimRef, LockService, NotSent, ServiceError};

impl Node {
    /// Returns the outcome of a caller's claim as soon as it is decided.
    ///
    /// # Errors
    /// The caller may not know it, or this node does not lead and forwards as many waits as it may.
    pub(super) async fn wait_outcome_authorized(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        let (wait_ms, mut place) = (limits::SETTLED_WAIT_MS, None);
        loop {
            let reply = if self.serves().await {
                place = None;
                self.wait_outcome_here(&claim, Duration::from_millis(wait_ms)).await?
            } else {
                // A wait keeps its place until it ends, however often it is forwarded.
                if place.is_none() {
                    place = Some(self.core.forwarded_waits.take(self.caller_source())?);
                }
                let settled = Forward::Settled { claim: claim.clone(), wait_ms };
                let Forwarded::Reply(reply) = Box::pin(self.send_to_leader(settled, Some(wait_ms))).await? else {
                    return Err(unexpected());
                };
                reply
            };
            if !matches!(reply.outcome, Outcome::Queued(_)) {
                return Ok(reply);
            }
        }
    }

    /// Returns the outcome of a claim as soon as it is decided, or its current state after `wait`.
    pub(super) async fn wait_outcome_here(&self, claim: &ClaimRef, wait: Duration) -> Result<Reply, ServiceError> {
        let begun = tokio::time::Instant::now();
        let deadline = begun + wait;
        let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
        let (mut confirmed, mut rules) = (false, self.core.auth.as_ref().map(Auth::changes));
        loop {
            let authorizer = self.authorizer()?;
            let waiter = self.core.shared.claim_waiters.register(claim.claim);
            if *self.core.stop.borrow() {
                return Err(ServiceError::Stopping);
            }
            if !self.leads() {
                return Err(self.not_sent(NotSent::NotLeader));
            }
            let reply = claim_reply(self.read(authorizer.as_ref(), &query)?, &claim.lock)?;
            if !matches!(reply.outcome, Outcome::Queued(_)) {
                // Another leader may have decided more, such as the end of a hold. A grant that was committed during
                // this call usually is the proof that this node led then.
                if confirmed || self.core.consensus.led_since(begun) {
                    return Ok(reply);
                }
                self.confirm_leadership().await?;
                confirmed = true;
                continue;
            }
            let notified = waiter.notified();
            tokio::select! {
                () = notified => {}
                () = changed(&mut rules) => {}
                () = tokio::time::sleep_until(deadline) => return Ok(reply),
            }
        }
    }
}

fn claim_reply(answer: QueryReply, lock: &LockKey) -> Result<Reply, ServiceError> {
    let QueryReply { index, now, answer } = answer;
    let QueryResult::Claim { outcome, recalled } = answer else {
        return Err(ServiceError::Internal("the machine answered another question".into()));
    };
    let outcome = outcome.unwrap_or_else(|| Outcome::Refused(Refusal::NotHeld { lock: lock.clone() }));
    Ok(Reply { index, stamp: now, outcome, recalled })
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::auth::Who;
    use crate::model::{
        Claim, Command, Handle, LeaseRequestId, LockName, Metadata, Mode, Namespace, Patience, TakeLease,
    };
    use crate::service::{Call, Freshness, Source};
    use crate::testing::Cluster;

    fn take(number: u128, patience: Patience) -> Call {
        Call::new(Command::TakeLease(TakeLease {
            lock: busy(),
            take: LeaseRequestId(number),
            handle: Handle::from_random(number),
            access: Mode::Exclusive.into(),
            lease_ms: 600_000,
            patience,
            metadata: Metadata::default(),
            claim_ms: None,
        }))
    }

    fn busy() -> LockKey {
        LockKey { namespace: Namespace::default(), name: LockName::parse("busy").expect("legal") }
    }

    const LONG: Duration = Duration::from_secs(60);

    fn is_overloaded(answered: &Result<Reply, ServiceError>) -> bool {
        matches!(answered, Err(ServiceError::NotSent { why: NotSent::Overloaded { .. }, .. }))
    }

    /// A source that waits for many outcomes at a node that does not lead leaves the connection to the leader room for
    /// the calls of others. A wait that ends makes space, and the leader forwards none.
    #[tokio::test]
    async fn forwarded_waits_leave_room() {
        let cluster = Cluster::start(3, None).await.expect("a cluster");
        let (leader, follower) = (cluster.leader().await, cluster.follower().await);
        for (number, patience) in [(1, Patience::Try), (2, Patience::For { ms: 600_000 })] {
            leader.service().submit(take(number, patience)).await.expect("answered");
        }
        let on = |node: &Node, connection| {
            node.for_caller(Source::Connection(connection), None, || Ok(Who::Anonymous)).expect("a caller")
        };
        let waits = |node: Node| async move {
            let claim = ClaimRef { lock: busy(), claim: Claim::Lease(LeaseRequestId(2)) };
            node.wait_outcome(claim).await
        };
        let source = || Source::Connection(1);
        let mut taken = Vec::new();
        while let Ok(place) = follower.core.forwarded_waits.take(source()) {
            taken.push(place);
        }
        assert!(taken.len() < limits::FORWARDED_WAITS_MAX);
        let refused = async || {
            let answered = timeout(LONG, waits(on(&follower, 1))).await;
            assert!(is_overloaded(&answered.expect("no wait without a place")));
        };
        refused().await;
        let brief = Duration::from_millis(300);
        assert!(timeout(brief, waits(on(&follower, 2))).await.is_err(), "another source waits");
        assert!(timeout(brief, waits(on(&leader, 1))).await.is_err(), "the leader forwards nothing");
        let totals = on(&follower, 1).query(Query::Totals, Freshness::Linearizable).await;
        assert!(totals.is_ok(), "{totals:?}");
        taken.pop();
        let mut waiting = Box::pin(waits(on(&follower, 1)));
        assert!(timeout(brief, waiting.as_mut()).await.is_err(), "there is a place again");
        refused().await;
        drop((waiting, taken));
        assert!(follower.core.forwarded_waits.take(source()).is_ok());
    }
}
