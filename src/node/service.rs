//! The lock service of a node: answered in-process on the leader, and forwarded to the leader by other nodes.

use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use super::audited::Act;
use super::auth::Caller;
use super::authorizer::{Authorizer, right_of, unknown};
use super::forward::{Forward, Forwarded, unexpected};
use super::proof::{replace_proof, shown, shown_by};
use super::rate_limit::ends_of_any_caller;
use super::{Node, validate};
use crate::audit::CALL_FROM_PAGE;
use crate::auth::{ClusterRight, Denied, Who};
use crate::faults::{self, Fault};
use crate::limits;
use crate::machine::Machine;
use crate::model::{
    Command, Invalid, LogTime, Outcome, Principal, Query, QueryReply, Refusal, Reply, SessionId, Submission,
};
use crate::raft::ProposeError;
use crate::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, NotSent, Operation, Proof, RenewalCall, Scope,
    ServiceError, Source, Status, Subscription,
};

impl LockService for Node {
    fn for_caller(
        &self,
        source: Source,
        from: Option<SocketAddr>,
        who: impl FnOnce() -> Result<Who, ServiceError>,
    ) -> Result<Self, ServiceError> {
        let mut node = Self { caller: Caller { source, who: Who::Anonymous, from }, ..self.clone() };
        if self.knows_callers() {
            let known = who().and_then(|who| {
                node.caller.who = who;
                node.authorizer().map(drop)
            });
            self.core.shared.metrics.refusals.of_answer(&known);
            known.map_err(|error| node.noted("login", error))?;
            node.audit_first_use();
        } else if self.core.audit.is_some()
            && let Ok(shown @ Who::Certificate { .. }) = who()
        {
            // Without rules it gives no right, but the audit log names it.
            node.caller.who = shown;
        }
        Ok(node)
    }

    fn page_refused(&self, source: Source, from: Option<SocketAddr>, refusal: &ServiceError) {
        let caller = Caller { source, who: Who::Anonymous, from };
        drop(Self { caller, ..self.clone() }.noted(CALL_FROM_PAGE, refusal.clone()));
    }

    async fn whoami(&self) -> Result<Principal, ServiceError> {
        Ok(self.authorizer()?.map(|authorizer| authorizer.principal).unwrap_or_default())
    }

    fn caller_source(&self) -> Source {
        self.source(self.authorizer().ok().flatten().as_ref())
    }

    fn knows_callers(&self) -> bool {
        self.core.auth.is_some()
    }

    fn permits(&self, right: ClusterRight) -> Result<(), ServiceError> {
        let act = match right {
            ClusterRight::Metrics => "metrics",
            ClusterRight::Backup => "backup",
            ClusterRight::Operate => "operate",
        };
        self.needs(right, act)
    }

    fn has(&self, right: ClusterRight) -> bool {
        let authorizer = self.authorizer();
        authorizer
            .is_ok_and(|authorizer| authorizer.is_none_or(|of| of.access.need_cluster(&of.principal, right).is_ok()))
    }

    fn submit(&self, call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send {
        let answering = if self.may_be_act(&call.command) {
            Either::Right(Box::pin(self.submit_audited(call)))
        } else {
            Either::Left(self.submit_authorized(call))
        };
        answering.inspect(|reply| self.core.shared.metrics.refusals.of_reply(reply))
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        let replies = self.renew_authorized(renewals).await;
        self.core.shared.metrics.refusals.of_replies(&replies);
        replies
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        self.wait_outcome_authorized(claim).await
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let answer = self.query_authorized(query, freshness).await;
        self.core.shared.metrics.refusals.of_answer(&answer);
        answer
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let events = self.subscribe_authorized(subscription);
        self.core.shared.metrics.refusals.of_answer(&events);
        events
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        self.watched(Scope::Holds(session), || self.core.shared.hub.of_sessions.holds(session))
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        self.authorizer()?;
        Ok(self.status_from_leader().await)
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        let act = Act::of_operation(&operation);
        let permitted = self.needs(right_of(&operation), act.name);
        let node = self.clone();
        let executing = async move {
            if node.leads() {
                return node.operate_here(operation).await;
            }
            let wait_ms = Some(limits::MEMBERSHIP_WAIT_MS_MAX);
            let Forwarded::Operated = node.send_to_leader(Forward::Operate(operation), wait_ms).await? else {
                return Err(unexpected());
            };
            Ok(())
        };
        self.audited(act, permitted, executing, |()| None).await
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        let act = Act::new("backup");
        self.needs(ClusterRight::Backup, act.name)?;
        // A backup that is refused because there are too many is no act.
        let in_progress = self.core.backups.begin(self.core.clock.now()).map_err(ServiceError::not_sent)?;
        // This node decides about the whole backup, the read at the leader included.
        let node = Self { caller: Caller { who: Who::Local, ..self.caller.clone() }, ..self.clone() };
        let ((sender, parts), (begin, begun)) = (mpsc::channel(2), oneshot::channel());
        let download = Download::new(ReceiverStream::new(parts));
        let executing = async move {
            begin.send(()).ok();
            node.backup_here(in_progress, sender).await
        };
        // The download begins before the file is made: making a large file can take longer than a client waits.
        tokio::select! {
            biased;
            Ok(()) = begun => Ok(download),
            made = self.audited(act, Ok(()), executing, |()| None) => made.map(|()| download),
        }
    }
}

impl Node {
    /// Serves a command of a caller here or at the leader.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn holds its argument twice: as argument and as variable"
    )]
    pub(super) fn submit_authorized(&self, mut call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send {
        async move {
            let authorizer = self.authorizer()?;
            validate::check(&call)?;
            self.limit_other_guesses(authorizer.as_ref(), &call.command)?;
            match self.limit_guesses(authorizer.as_ref(), shown_by(&call)) {
                // The refusal of an attach is a reply, as from the machine.
                Err(ServiceError::Refused(refusal)) if matches!(call.command, Command::Attach(_)) => {
                    return Ok(self.core.consensus.machine(|machine| refused(machine, refusal)));
                }
                guessed => replace_proof(&mut call.proof, guessed?),
            }
            if self.serves().await {
                let authorizer = authorizer.as_ref();
                if let Some(reply) = self.reply_without_entry(authorizer, &call).await? {
                    return Ok(self.redacted(authorizer, reply));
                }
                let reply = answered(self.propose_authorized(authorizer, call)?).await?;
                return Ok(self.redacted(authorizer, reply));
            }
            if let Some(principal) = self.named() {
                // Without rules here, the leader gets no other name of the caller.
                call.principal = principal.clone();
            }
            // Boxed, so that the future of a call that is served here reserves no space for forwarding.
            Box::pin(self.submit_to_leader(call)).await
        }
    }

    /// Returns a reply without what the caller may not know of other names, or of how another's session ended.
    pub(super) fn redacted(&self, authorizer: Option<&Authorizer>, mut reply: Reply) -> Reply {
        let (Some(authorizer), Outcome::Refused(refusal)) = (authorizer, &mut reply.outcome) else { return reply };
        authorizer.redact(refusal);
        if let Refusal::SessionEnded { session, .. } = *refusal
            && self.core.consensus.machine(|machine| authorizer.hides(machine, session))
        {
            *refusal = unknown(session);
        }
        reply
    }

    /// Puts a command of this node itself through the log.
    pub(super) async fn submit_here(&self, call: Call) -> Result<Reply, ServiceError> {
        answered(self.propose_here(None, call)?).await
    }

    /// Decides about a command of a caller on this node, which leads. Returns the reply that the caller gets without an
    /// entry in the log, because it must not learn more or names a session that was never opened; `None` if the command
    /// may be executed. Ids of sessions are public and can be predicted: in the log, a command for the next one could
    /// follow the command that opens it, and nothing would have compared its handle, owner and rights.
    pub(super) async fn reply_without_entry(
        &self,
        authorizer: Option<&Authorizer>,
        call: &Call,
    ) -> Result<Option<Reply>, ServiceError> {
        let session = call.command.session().filter(|_| authorizer.is_some() || call.proof != Proof::Trusted);
        if authorizer.is_none() && session.is_none() {
            return Ok(None);
        }
        let decide = || {
            self.core.consensus.machine(|machine| {
                if let Some(never_opened) = session.filter(|session| !machine.was_opened(*session)) {
                    return Ok(Some(refused(machine, unknown(never_opened))));
                }
                let Some(authorizer) = authorizer else { return Ok(None) };
                let outcome = authorizer.command(machine, &call.command)?;
                Ok::<_, Denied>(outcome.map(|outcome| Reply::new(machine.applied(), machine.now(), outcome)))
            })
        };
        if let Ok(None) = decide() {
            return Ok(None);
        }
        // This state may be old, and what it lacks may exist.
        Box::pin(self.confirm_leadership()).await?;
        decide().map_err(|denied| self.noted("command", denied.into()))
    }

    /// Proposes a caller's command under its principal.
    pub(super) fn propose_authorized(
        &self,
        authorizer: Option<&Authorizer>,
        mut call: Call,
    ) -> Result<oneshot::Receiver<Result<Reply, ServiceError>>, ServiceError> {
        if let Some(principal) = authorizer.map_or_else(|| self.named(), |authorizer| Some(&authorizer.principal)) {
            call.principal = principal.clone();
        }
        self.propose_here(authorizer, call)
    }

    fn propose_here(
        &self,
        authorizer: Option<&Authorizer>,
        call: Call,
    ) -> Result<oneshot::Receiver<Result<Reply, ServiceError>>, ServiceError> {
        let shown = shown(call.command.session(), &call.proof);
        if let Some((session, handle, namespace)) = shown {
            self.core.consensus.machine(|machine| machine.proves(session, handle, namespace))?;
        }
        self.core.admits(&call.command)?;
        let (answer, reply) = oneshot::channel();
        let found = || {
            self.core.consensus.machine(|machine| {
                let owner = call.command.session().and_then(|session| machine.session_principal(session));
                let namespace = owner.map(|(namespace, _)| namespace).or(shown.map(|(_, _, namespace)| namespace));
                let ends = machine.ends_something(&call.command) || ends_of_any_caller(machine, &call.command);
                (namespace.cloned(), ends)
            })
        };
        if let Err(limited) = self.core.rate_limits.check(&call.command, authorizer, &*self.core.clock, found) {
            let known = self.core.consensus.machine(|machine| {
                let outcome = machine.known_answer(&call.command)?;
                Some(Reply::new(machine.applied(), machine.now(), outcome))
            });
            let known = known.ok_or_else(|| ServiceError::not_sent(limited))?;
            answer.send(Ok(known)).ok();
            return Ok(reply);
        }
        let since = call.command.is_sessionless().then(|| self.sent_at(&call)).transpose()?;
        let submission = Submission { principal: call.principal, since, command: call.command };
        self.core.queue.command(self.source(authorizer), submission, answer).map_err(|why| self.not_sent(why))?;
        Ok(reply)
    }

    /// Returns the log time when the caller first sent a command without a session, or an earlier time. It is the log
    /// time that the caller knew, or else the leader's log time less the age that the caller reports.
    ///
    /// # Errors
    /// Refuses a log time that is far in the future, because a late copy of the command would be executed. The clock of
    /// an earlier leader was at most one step ahead of the log: the longest election timeout.
    fn sent_at(&self, call: &Call) -> Result<LogTime, ServiceError> {
        let now = self.core.queue.log_time();
        let Some(since) = call.since else {
            return Ok(LogTime(now.unwrap_or_default().0.saturating_sub(call.age_ms)));
        };
        match now.filter(|now| now.after_ms(limits::ELECTION_MS_MAX) < since) {
            None => Ok(since),
            Some(now) => {
                Err(Invalid::new("since", format!("a log time that has passed, at most {}", now.0), since.0).into())
            }
        }
    }

    /// Answers a query of a caller here, or at the leader.
    async fn query_authorized(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let authorizer = self.authorizer()?;
        validate::query(&query)?;
        match freshness {
            Freshness::Stale => self.read(authorizer.as_ref(), &query),
            Freshness::Linearizable if self.serves().await => self.query_here(authorizer.as_ref(), &query).await,
            Freshness::Linearizable => {
                let answer = Box::pin(self.send_to_leader(Forward::Query(query), None)).await?;
                let Forwarded::QueryReply(answered) = answer else { return Err(unexpected()) };
                Ok(answered)
            }
        }
    }

    pub(super) async fn query_here(
        &self,
        authorizer: Option<&Authorizer>,
        query: &Query,
    ) -> Result<QueryReply, ServiceError> {
        if let Some(authorizer) = authorizer {
            let permitted = self.core.consensus.machine(|machine| authorizer.query(machine, query).map(drop));
            permitted.map_err(|denied| self.noted("query", denied.into()))?;
        }
        self.confirm_leadership().await?;
        self.read(authorizer, query)
    }

    /// Answers a query from the state of this node, limited to what the caller may know.
    pub(super) fn read(&self, authorizer: Option<&Authorizer>, query: &Query) -> Result<QueryReply, ServiceError> {
        let answered = self.core.consensus.machine(|machine| {
            let Some(authorizer) = authorizer else { return Ok(machine.query(query)) };
            let Some(answer) = authorizer.query(machine, query)? else {
                let mut reply = machine.query(query);
                authorizer.redact_answer(&mut reply.answer);
                return Ok(reply);
            };
            Ok(QueryReply { index: machine.applied(), now: machine.now(), answer })
        });
        // The audit log is written after the state is unlocked.
        answered.map_err(|denied: Denied| self.noted("query", denied.into()))
    }

    /// Confirms by a round to a quorum that this node leads and has applied every command that was answered before.
    pub(super) async fn confirm_leadership(&self) -> Result<(), ServiceError> {
        if faults::on(Fault::ReadWithoutQuorum) {
            return Ok(());
        }
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

    /// Returns the error of a request for which Raft returned an error; `not_sent` is the reason if it changed nothing.
    pub(super) fn proposal_failed(&self, error: ProposeError, not_sent: NotSent) -> ServiceError {
        match error {
            ProposeError::NotSent { .. } => self.not_sent(not_sent),
            ProposeError::Unknown(why) => ServiceError::unknown(why),
            ProposeError::Stopped => ServiceError::Stopping,
        }
    }

    pub(super) fn not_sent(&self, why: NotSent) -> ServiceError {
        let leader = self.core.leader_hint().filter(|hint| hint.node != self.core.id);
        ServiceError::NotSent { why, leader }
    }
}

/// Returns a reply with a refusal that needed no place in the log.
pub(super) fn refused(machine: &Machine, refusal: Refusal) -> Reply {
    Reply::new(machine.applied(), machine.now(), Outcome::Refused(refusal))
}

/// Waits for the reply to a queued command or renewal. If the sender is dropped, the outcome is unknown.
pub(super) async fn answered(reply: oneshot::Receiver<Result<Reply, ServiceError>>) -> Result<Reply, ServiceError> {
    reply.await.unwrap_or_else(|_| Err(ServiceError::unknown("the node stopped before it was answered")))
}
