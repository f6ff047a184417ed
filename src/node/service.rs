//! The lock service of a node: answered in-process on the leader, and forwarded to the leader by other nodes.

use std::time::Duration;

use tokio::sync::oneshot;

use super::forward::{Forward, Forwarded, unexpected};
use super::proof::{replace_proof, shown, shown_by};
use super::proposer::queue::Now;
use super::{Node, validate};
use crate::limits;
use crate::machine::Machine;
use crate::model::{
    Command, Invalid, LockKey, LogTime, Outcome, Query, QueryReply, QueryResult, Refusal, Reply, SessionId, Submission,
};
use crate::raft::ProposeError;
use crate::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, MemberChange, NotSent, RenewalCall, Scope, ServiceError,
    Source, Status, Subscription,
};

impl LockService for Node {
    fn for_source(&self, source: Source) -> Self {
        Self { source, ..self.clone() }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn holds its argument twice: as argument and as variable"
    )]
    fn submit(&self, mut call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send {
        async move {
            validate::check(&call)?;
            match self.limit_guesses(shown_by(&call)) {
                // The refusal of an attach is a reply, as from the machine.
                Err(ServiceError::Refused(refusal)) if matches!(call.command, Command::Attach(_)) => {
                    return Ok(self.core.consensus.machine(|machine| refused(machine, refusal)));
                }
                guessed => replace_proof(&mut call.proof, guessed?),
            }
            if self.serves().await {
                return answered(self.propose_here(call)?).await;
            }
            // Boxed, so that the future of a call that is served here reserves no space for forwarding.
            Box::pin(self.submit_to_leader(call)).await
        }
    }

    async fn renew(&self, mut renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        for renewal in &mut renewals {
            match self.limit_guesses(shown(renewal.target.session(), &renewal.proof)) {
                Ok(proven) => replace_proof(&mut renewal.proof, proven),
                Err(error @ ServiceError::NotSent { .. }) => return Err(error),
                // A wrong handle is answered in its place in the list.
                Err(_) => {}
            }
        }
        if self.serves().await {
            return self.renew_here(renewals).await;
        }
        let Forwarded::Replies(replies) = Box::pin(self.send_to_leader(Forward::Renew(renewals), None)).await? else {
            return Err(unexpected());
        };
        Ok(replies)
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        let wait_ms = limits::SETTLED_WAIT_MS;
        loop {
            let reply = if self.serves().await {
                self.wait_outcome_here(&claim, Duration::from_millis(wait_ms)).await?
            } else {
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

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        validate::query(&query)?;
        match freshness {
            Freshness::Stale => Ok(self.core.consensus.machine(|machine| machine.query(&query))),
            Freshness::Linearizable => {
                if self.serves().await {
                    return self.query_here(&query).await;
                }
                let answer = Box::pin(self.send_to_leader(Forward::Query(query), None)).await?;
                let Forwarded::QueryReply(answered) = answer else { return Err(unexpected()) };
                Ok(answered)
            }
        }
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        validate::scope(&subscription.scope)?;
        if let Some(of) = subscription.cluster_id {
            let here = self.core.consensus.cluster_id().borrow().ok_or_else(|| self.not_sent(NotSent::NoLeader))?;
            if of != here {
                let bound = format!("of this cluster, {here:032x}");
                return Err(Invalid::new("position", bound, format!("one of {of:032x}")).into());
            }
        }
        if let Scope::SessionEnd(session) = subscription.scope {
            return Ok(self.core.shared.hub.session_end(session));
        }
        if let Scope::Holds(session) = subscription.scope {
            return self.hold_events(session);
        }
        let (events, feed) = self.core.shared.hub.subscribe(subscription);
        self.spawn(feed);
        Ok(events)
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        Ok(self.core.shared.hub.hold_events(session))
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        Ok(self.status_from_leader().await)
    }

    async fn transfer(&self, to: u64) -> Result<(), ServiceError> {
        let members = self.core.members();
        if !members.contains_key(&to) {
            let known: Vec<_> = members.keys().collect();
            return Err(Invalid::new("node", format!("one of {known:?}"), to).into());
        }
        if self.leads() {
            return self.transfer_here(to).await;
        }
        let Forwarded::Transferred =
            self.send_to_leader(Forward::Transfer(to), Some(limits::MEMBERSHIP_WAIT_MS_MAX)).await?
        else {
            return Err(unexpected());
        };
        Ok(())
    }

    async fn change_members(&self, change: MemberChange) -> Result<(), ServiceError> {
        if self.leads() {
            return self.change_members_here(change).await;
        }
        let Forwarded::MembersChanged =
            self.send_to_leader(Forward::ChangeMembers(change), Some(limits::MEMBERSHIP_WAIT_MS_MAX)).await?
        else {
            return Err(unexpected());
        };
        Ok(())
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        Ok(self.backup_here())
    }

    async fn raise_features(&self, to: u32) -> Result<(), ServiceError> {
        if self.leads() {
            return self.raise_features_here(to).await;
        }
        let Forwarded::FeaturesRaised = self.send_to_leader(Forward::RaiseFeatures(to), None).await? else {
            return Err(unexpected());
        };
        Ok(())
    }
}

impl Node {
    /// Serves a call that another node forwarded. If this node does not lead, it refuses the call; it forwards the call
    /// again only if the call waited here during a transfer of leadership.
    pub(super) async fn serve_forwarded(&self, forward: Forward) -> Forwarded {
        let anywhere = matches!(forward, Forward::Hello | Forward::Digests);
        if !(anywhere || self.serves().await) {
            let leader = self.core.leader_hint();
            return Forwarded::Error(ServiceError::NotSent { why: NotSent::NotLeader, leader });
        }
        let served = match forward {
            Forward::Submit(call) => match validate::check(&call) {
                Ok(()) => self.submit_here(*call).await.map(Forwarded::Reply),
                Err(error) => Err(error),
            },
            Forward::Renew(renewals) => self.renew_here(renewals).await.map(Forwarded::Replies),
            Forward::Settled { claim, wait_ms } => {
                let wait = Duration::from_millis(wait_ms.min(limits::SETTLED_WAIT_MS));
                self.wait_outcome_here(&claim, wait).await.map(Forwarded::Reply)
            }
            Forward::Query(query) => self.query_here(&query).await.map(Forwarded::QueryReply),
            Forward::Transfer(to) => self.transfer_here(to).await.map(|()| Forwarded::Transferred),
            Forward::Status => Ok(Forwarded::Status(self.status_here())),
            Forward::RaiseFeatures(to) => self.raise_features_here(to).await.map(|()| Forwarded::FeaturesRaised),
            Forward::ChangeMembers(change) => {
                self.change_members_here(change).await.map(|()| Forwarded::MembersChanged)
            }
            Forward::Digests => Ok(Forwarded::Digests(self.core.consensus.digests())),
            Forward::Hello => Ok(Forwarded::Hello(self.core.announcement.clone())),
        };
        served.unwrap_or_else(Forwarded::Error)
    }

    pub(super) async fn submit_here(&self, call: Call) -> Result<Reply, ServiceError> {
        answered(self.propose_here(call)?).await
    }

    fn propose_here(&self, call: Call) -> Result<oneshot::Receiver<Result<Reply, ServiceError>>, ServiceError> {
        if let Some((session, handle, namespace)) = shown(call.command.session(), &call.proof) {
            self.core.consensus.machine(|machine| machine.proves(session, handle, namespace))?;
        }
        self.core.admits(&call.command)?;
        let namespace_of = |session| self.core.consensus.machine(|machine| machine.namespace_of(session).cloned());
        let limited = self.core.rate_limits.check(&call.command, &*self.core.clock, namespace_of);
        limited.map_err(ServiceError::not_sent)?;
        let (answer, reply) = oneshot::channel();
        let since = call.command.is_sessionless().then(|| self.sent_at(&call));
        let submission = Submission { principal: call.principal, since, command: call.command };
        self.core.queue.command(self.source, submission, answer).map_err(|why| self.not_sent(why))?;
        Ok(reply)
    }

    /// Returns the log time when the caller first sent a command without a session, or an earlier time. It is the log
    /// time that the caller knew, or else the leader's log time less the age that the caller reports.
    fn sent_at(&self, call: &Call) -> LogTime {
        call.since.unwrap_or_else(|| {
            let now = self.core.queue.log_time().unwrap_or_default();
            LogTime(now.0.saturating_sub(call.age_ms))
        })
    }

    async fn renew_here(&self, mut renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        let mut refused = self.refused_renewals(&renewals);
        if !refused.is_empty() {
            // This state may be old, and what it lacks may exist.
            self.confirm_leadership().await?;
            refused = self.refused_renewals(&renewals);
        }
        leave_out(&mut renewals, &refused);
        let (applied, timed) =
            self.core.consensus.machine(|machine| (machine.now(), machine.next_deadline().is_some()));
        let now = || Now { instant: self.core.clock.now(), applied, timed };
        let waiting = self.core.queue.renewals(self.source, renewals, now).map_err(|why| self.not_sent(why))?;
        let mut replies = Vec::with_capacity(waiting.len());
        for reply in waiting {
            match answered(reply).await {
                Ok(reply) => replies.push(reply),
                // Some renewals were applied before, so the error must not say that the whole list was not sent.
                Err(ServiceError::NotSent { .. }) if !replies.is_empty() => {
                    return Err(ServiceError::unknown("only a part of the renewals was applied"));
                }
                Err(error) => return Err(error),
            }
        }
        // Inserted in ascending order of their places, so that every earlier reply is present by then.
        refused.into_iter().for_each(|(place, reply)| replies.insert(place, reply));
        Ok(replies)
    }

    /// Returns the refusals of the renewals with an invalid proof, and of those that this state refuses because their
    /// targets do not exist, with their places. They must not stop the other renewals, and need no place in the log.
    fn refused_renewals(&self, renewals: &[RenewalCall]) -> Vec<(usize, Reply)> {
        self.core.consensus.machine(|machine| {
            let disproved = |call: &RenewalCall| {
                let (session, handle, namespace) = shown(call.target.session(), &call.proof)?;
                machine.proves(session, handle, namespace).err()
            };
            let refusal = |call| disproved(call).or_else(|| machine.refuses_renewal(&call.target));
            let calls = renewals.iter().enumerate();
            calls.filter_map(|(place, call)| Some((place, refused(machine, refusal(call)?)))).collect()
        })
    }

    /// Returns the outcome of a claim as soon as it is decided, or its current state after `wait`.
    async fn wait_outcome_here(&self, claim: &ClaimRef, wait: Duration) -> Result<Reply, ServiceError> {
        let begun = tokio::time::Instant::now();
        let deadline = begun + wait;
        let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
        let mut confirmed = false;
        loop {
            let waiter = self.core.shared.claim_waiters.register(claim.claim);
            if *self.core.stop.borrow() {
                return Err(ServiceError::Stopping);
            }
            if !self.leads() {
                return Err(self.not_sent(NotSent::NotLeader));
            }
            let reply = self.core.consensus.machine(|machine| claim_reply(machine, &query, &claim.lock))?;
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
                () = tokio::time::sleep_until(deadline) => return Ok(reply),
            }
        }
    }

    async fn query_here(&self, query: &Query) -> Result<QueryReply, ServiceError> {
        self.confirm_leadership().await?;
        Ok(self.core.consensus.machine(|machine| machine.query(query)))
    }

    /// Confirms by a round to a quorum that this node leads and has applied every command that was answered before.
    async fn confirm_leadership(&self) -> Result<(), ServiceError> {
        match self.core.consensus.read_barrier().await {
            Ok(()) => Ok(()),
            Err(ProposeError::Stopped) => Err(ServiceError::Stopping),
            Err(ProposeError::NotSent { leader }) => {
                let leader = self.core.hint(leader);
                Err(ServiceError::NotSent { why: NotSent::NoLeader, leader })
            }
            // A read changes nothing, so it may be repeated after any error.
            Err(ProposeError::Unknown(_)) => Err(ServiceError::not_sent(NotSent::NoLeader)),
        }
    }

    pub(super) fn not_sent(&self, why: NotSent) -> ServiceError {
        let leader = self.core.leader_hint().filter(|hint| hint.node != self.core.id);
        ServiceError::NotSent { why, leader }
    }
}

/// Returns a reply with a refusal that needed no place in the log.
fn refused(machine: &Machine, refusal: Refusal) -> Reply {
    Reply::new(machine.applied(), machine.now(), Outcome::Refused(refusal))
}

/// Removes the renewals at the places of these refusals, which are in ascending order.
fn leave_out(renewals: &mut Vec<RenewalCall>, refused: &[(usize, Reply)]) {
    let (mut places, mut refused) = (0.., refused.iter().map(|(place, _)| *place).peekable());
    renewals.retain(|_| {
        let place = places.next();
        refused.next_if(|refused| Some(*refused) == place).is_none()
    });
}

/// Waits for the reply to a queued command or renewal. If the sender is dropped, the outcome is unknown.
async fn answered(reply: oneshot::Receiver<Result<Reply, ServiceError>>) -> Result<Reply, ServiceError> {
    reply.await.unwrap_or_else(|_| Err(ServiceError::unknown("the node stopped before it was answered")))
}

fn claim_reply(machine: &Machine, query: &Query, lock: &LockKey) -> Result<Reply, ServiceError> {
    let QueryReply { index, now, answer } = machine.query(query);
    let QueryResult::Claim { outcome, recalled } = answer else {
        return Err(ServiceError::Internal("the machine answered another question".into()));
    };
    let outcome = outcome.unwrap_or_else(|| Outcome::Refused(Refusal::NotHeld { lock: lock.clone() }));
    Ok(Reply { index, stamp: now, outcome, recalled })
}
