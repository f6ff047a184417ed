//! What a node writes to its audit log: acts of operators, and refused callers. The node that a caller has reached
//! writes, not the leader that executes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Node;
use crate::audit::{AuditRecord, Phase};
use crate::auth::{Right, Who};
use crate::limits;
use crate::model::{
    Command, DocumentCommand, EndSession, LockKey, Manage, Managing, Outcome, Principal, Refusal, Reply, Setting,
};
use crate::net::PortTls;
use crate::service::{Call, MemberChange, Operation, ServiceError, Source};

/// The name of the act that asks a holder for its lock.
const ASK: &str = "ask";

/// An act that the log names.
pub(super) struct Act {
    pub(super) name: &'static str,
    /// What the act is about, see [`AuditRecord::facts`].
    facts: BTreeMap<&'static str, String>,
}

impl Act {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, facts: BTreeMap::new() }
    }

    /// Adds a fact.
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.facts.insert(name, value.to_string());
        self
    }

    /// Returns the act of a command; `None` if the history of its locks suffices. A new command must be sorted here.
    fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Manage(manage) => Some(Self::of_operator(manage)),
            Command::EndSession(EndSession { namespace, session, why }) => {
                let act = Self::new("end-session").with("session", session).with("why", why.as_str());
                Some(act.with("namespace", namespace))
            }
            Command::ChangeSetting(Setting::TtlMax(ms)) => Some(Self::new("settings").with("ttl_ms_max", ms)),
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::CloseSession { .. }
            | Command::Acquire(_)
            | Command::Cancel { .. }
            | Command::Release(_)
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Alter(_)
            | Command::Document(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => None,
        }
    }

    fn of_operator(Manage { lock, what }: &Manage) -> Self {
        let act = match what {
            Managing::SetLimit { limit } => Self::new("set-limit").with("limit", limit),
            Managing::RemoveLimit => Self::new("remove-limit"),
            Managing::BreakHold { token, why } => Self::new("break").with("token", token).with("why", why.as_str()),
            Managing::HandOver { token, to } => Self::new("hand-over").with("token", token).with("to", to),
            Managing::Ask { token, why } => Self::new(ASK).with("token", token).with("why", why.as_str()),
        };
        let LockKey { namespace, name } = lock;
        act.with("namespace", namespace).with("lock", name)
    }

    pub(super) fn of_operation(operation: &Operation) -> Self {
        match operation {
            Operation::Transfer(to) => Self::new("transfer").with("to", to),
            Operation::RaiseFeatures(to) => Self::new("raise-features").with("to", to),
            Operation::ChangeMembers(change) => Self::of_members(change),
        }
    }

    fn of_members(change: &MemberChange) -> Self {
        match change {
            MemberChange::Add { node, client, peer } => {
                Self::new("member-add").with("of_node", node).with("client", client).with("peer", peer)
            }
            MemberChange::Promote { node, instead_of } => {
                let act = Self::new("member-promote").with("of_node", node);
                if let Some(other) = instead_of { act.with("instead_of", other) } else { act }
            }
            MemberChange::Remove { node } => Self::new("member-remove").with("of_node", node),
        }
    }
}

impl Node {
    /// Executes an act. If the node has an audit log, the log gets a line with what the caller asks for, and one with
    /// the result. Neither a caller without the right nor one that sends too many acts can fill the log: both are
    /// refused before the first line. Without a log, the number of acts has no limit. `refusal` finds what the machine
    /// refused in a result. The act continues if its caller disconnects; only a backup ends then.
    ///
    /// # Errors
    /// The act failed. Or it was not executed: the caller lacks the right or sends too many acts, the log cannot be
    /// written, or the node stops.
    pub(super) async fn audited<T: Send + 'static>(
        &self,
        act: Act,
        permitted: Result<(), ServiceError>,
        executing: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
        refusal: fn(&T) -> Option<String>,
    ) -> Result<T, ServiceError> {
        permitted?;
        if *self.core.stop.borrow() {
            return Err(ServiceError::Stopping);
        }
        let mut asked = None;
        if let Some(log) = self.core.audit.clone() {
            self.limit_acts(&act)?;
            let record = self.record(act, Phase::Asked);
            log.write(&record).map_err(|error| {
                let path = log.path().display();
                ServiceError::Internal(format!("{path} cannot be written: {error}; nothing was done"))
            })?;
            asked = Some((log, record));
        }
        let node = self.core.id;
        self.detached(async move {
            let executed = executing.await;
            if let Some((log, mut record)) = asked {
                let refusal = executed.as_ref().map_or_else(|error| Some(error.to_string()), refusal);
                record.phase = if refusal.is_none() { Phase::Done } else { Phase::Refused };
                record.facts.insert("result", refusal.unwrap_or_else(|| "ok".to_owned()));
                if let Err(error) = log.write(&record) {
                    tracing::error!(node, %error, act = record.act, "the result is missing in the audit log");
                }
            }
            executed
        })
        .await
    }

    /// Executes this in a separate task, which a caller that disconnects does not end.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        executing: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move { drop(answer.send(executing.await)) });
        answered.await.unwrap_or_else(|_| Err(ServiceError::unknown("the node stopped before it was answered")))
    }

    /// Serves a command of a caller that may be an act.
    pub(super) async fn submit_audited(&self, call: Call) -> Result<Reply, ServiceError> {
        if matches!(call.command, Command::Document(_)) {
            // The state of this node may be older than the document.
            self.catch_up().await?;
        }
        let Some(act) = self.act_of(&call.command) else { return self.submit_authorized(call).await };
        let permitted = self.permits_act(&act, &call.command).await;
        let node = self.clone();
        self.audited(act, permitted, async move { node.submit_authorized(call).await }, refusal_of).await
    }

    /// Counts an act for its caller. The application that embeds the node has no limit.
    fn limit_acts(&self, act: &Act) -> Result<(), ServiceError> {
        if self.caller.who == Who::Local {
            return Ok(());
        }
        let source = self.source(self.authorizer()?.as_ref());
        let rate = if act.name == ASK { &self.core.asks } else { &self.core.acts };
        rate.take(&source, self.core.clock.now()).map_err(ServiceError::not_sent)
    }

    /// Whether a caller's command may be an act, which the state of the leader decides about.
    pub(super) fn may_be_act(&self, command: &Command) -> bool {
        let administers = |document| {
            let authorizer = self.authorizer().ok().flatten();
            authorizer.is_some_and(|authorizer| authorizer.may_administer(document))
        };
        if self.core.audit.is_none() {
            return false;
        }
        if let Command::Document(document) = command { administers(document) } else { Act::of(command).is_some() }
    }

    /// Returns the act of a caller's command; `None` if the history of its locks suffices.
    fn act_of(&self, command: &Command) -> Option<Act> {
        let Command::Document(document) = command else { return Act::of(command) };
        let authorizer = self.authorizer().ok()??;
        let LockKey { namespace, name } =
            self.core.consensus.machine(|machine| authorizer.anothers_document(machine, document))?;
        let act = if matches!(document, DocumentCommand::Grab(_)) { "overtake" } else { "unlock" };
        Some(Act::new(act).with("lock", name).with("namespace", namespace))
    }

    /// Whether the rules of this node permit the command of an act. The leader decides again.
    async fn permits_act(&self, act: &Act, command: &Command) -> Result<(), ServiceError> {
        let mut permitted = self.permits_here(command);
        if permitted.is_err() && self.may_own(command) {
            // The state of this node may be older than the hold.
            self.catch_up().await?;
            permitted = self.permits_here(command);
        }
        permitted.map_err(|error| self.noted(act.name, error))
    }

    fn permits_here(&self, command: &Command) -> Result<(), ServiceError> {
        let Some(authorizer) = self.authorizer()? else { return Ok(()) };
        Ok(self.core.consensus.machine(|machine| authorizer.command(machine, command)).map(drop)?)
    }

    /// Whether this command hands over a hold that may be the caller's own, by its rights.
    fn may_own(&self, command: &Command) -> bool {
        let Command::Manage(Manage { lock, what: Managing::HandOver { .. } }) = command else { return false };
        self.authorizer()
            .is_ok_and(|authorizer| authorizer.is_some_and(|authorizer| authorizer.need(Right::Lock, lock).is_ok()))
    }

    /// Counts that a caller of this node was refused. Also writes it, unless the same caller was refused in the last
    /// second. A wrong handle is only written. Returns the error.
    pub(super) fn noted(&self, act: &'static str, error: ServiceError) -> ServiceError {
        let refused = matches!(error, ServiceError::Forbidden { .. } | ServiceError::Unauthenticated { .. });
        // The caller may guess the handles of others.
        let guessed = matches!(error, ServiceError::Refused(Refusal::WrongHandle));
        // Another node writes about its own callers.
        let from_here = matches!(self.caller.source, Source::Connection(_));
        if refused && from_here {
            self.core.shared.metrics.refusals.of_caller(&error);
        }
        if let Some(log) = self.core.audit.as_ref().filter(|_| (refused || guessed) && from_here) {
            let record = self.record(Act::new(act).with("result", &error), Phase::Refused);
            if let Err(error) = log.write_refusal(record) {
                tracing::error!(node = self.core.id, %error, "a refusal is missing in the audit log");
            }
        }
        error
    }

    /// Writes each connection that this port refuses from now on, because of its certificate or without TLS.
    pub fn audit_port(&self, tls: &PortTls) {
        let (Some(log), node) = (self.core.audit.clone(), self.core.id) else { return };
        tls.on_refusal(move |port, from, why| {
            let facts = BTreeMap::from([("port", port.to_owned()), ("result", why.to_owned())]);
            let from = from.map(|from| from.to_string());
            let record = AuditRecord { from, facts, ..AuditRecord::new("connect", Phase::Refused, "unknown") };
            if let Err(error) = log.write_refusal(record) {
                tracing::error!(node, %error, "a refusal is missing in the audit log");
            }
        });
    }

    /// Writes that the node uses other certificates or another list of refused ones from now on. `of_ports` has the
    /// digest of each certificate chain that the ports for clients show.
    pub fn audit_certificates(&self, of_ports: impl IntoIterator<Item = String>) {
        let own = self.core.shared.certificates.as_ref().map(PortTls::digest);
        // Ports may share files.
        let digests: BTreeSet<_> = of_ports.into_iter().chain(own).collect();
        let digests = digests.into_iter().collect::<Vec<_>>().join(", ");
        self.audit_own(Act::new("reload-certificates").with("certificates", digests));
    }

    /// Writes the first use of a token since the node has started.
    pub(super) fn audit_first_use(&self) {
        let (Some(_), Who::Token(hash)) = (&self.core.audit, &self.caller.who) else { return };
        let mut seen = self.core.seen_tokens.lock();
        if seen.contains(hash) {
            return;
        }
        if limits::TOKENS_SEEN_MAX <= seen.len() {
            // Most of them were revoked: a file of rules has fewer.
            seen.clear();
        }
        seen.insert(*hash);
        drop(seen);
        self.audit_own(Act::new("first-use"));
    }

    /// Writes an act of the node itself.
    pub(super) fn audit_own(&self, act: Act) {
        let Some(log) = &self.core.audit else { return };
        let rules = self.core.auth.as_ref().map(|auth| format!("{:016x}", auth.rules().digest()));
        let mut record = self.record(act, Phase::Done);
        record.facts.extend(rules.map(|digest| ("rules", digest)));
        if let Err(error) = log.write(&record) {
            tracing::error!(node = self.core.id, %error, act = record.act, "a line is missing in the audit log");
        }
    }

    fn record(&self, Act { name, mut facts }: Act, phase: Phase) -> AuditRecord {
        let proof = match &self.caller.who {
            Who::Token(hash) => Some(format!("token {}", hash.id())),
            Who::Certificate { digest, .. } => Some(format!("cert:sha256:{digest}")),
            Who::Local | Who::Anonymous | Who::Proven(_) => None,
        };
        facts.extend(proof.map(|proof| ("proof", proof)));
        let who = match self.authorizer() {
            Ok(Some(authorizer)) => authorizer.principal.to_string(),
            Ok(None) if self.caller.who == Who::Local => Principal::local().to_string(),
            Ok(None) => self.named().cloned().unwrap_or_default().to_string(),
            Err(_) => "unknown".to_owned(),
        };
        // Such a certificate proves its name, but the rules do not count it.
        if let Who::Certificate { name, .. } = &self.caller.who
            && name.as_str() != who
        {
            facts.insert("certificate", name.to_string());
        }
        let from = self.caller.from.map(|from| from.to_string());
        AuditRecord { act: name, phase, principal: who, from, facts }
    }
}

/// Returns the refusal in a reply, as the text of the log.
fn refusal_of(reply: &Reply) -> Option<String> {
    if let Outcome::Refused(refusal) = &reply.outcome { Some(refusal.to_string()) } else { None }
}

/// Writes the start and the stop of the node to its audit log, and from time to time how many refusals it left out.
/// Names the end of that log in the node's own log from time to time, so that a removed end shows.
pub(super) async fn keep(node: Node) {
    let Some(log) = &node.core.audit else { return };
    node.audit_own(Act::new("start"));
    if let Some(certificates) = &node.core.shared.certificates {
        node.audit_port(certificates);
    }
    let mut named = 0;
    for pauses in 1.. {
        let pause = Duration::from_millis(limits::AUDIT_LEFT_OUT_MS);
        let stopped = tokio::time::timeout(pause, node.core.stopped()).await.is_ok();
        if let Err(error) = log.write_left_out() {
            tracing::error!(node = node.core.id, %error, "the number of refusals is missing in the audit log");
        }
        if stopped {
            node.audit_own(Act::new("stop"));
        }
        let (lines, hash) = log.end();
        let due = pauses % (limits::AUDIT_END_LOG_MS / limits::AUDIT_LEFT_OUT_MS) == 0;
        if (due || stopped) && lines != named {
            tracing::info!(node = node.core.id, lines, hash, "the end of the audit log");
            named = lines;
        }
        if stopped {
            return;
        }
    }
}
