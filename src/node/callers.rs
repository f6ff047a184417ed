//! The callers of a node with `[auth]`: the principal of each, and what it may watch.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use super::Node;
use super::audited::Act;
use super::auth::Caller;
use super::authorizer::Authorizer;
use super::validate;
use crate::auth::{Access, AuthError, ClusterRight, On, Right, Who, principal_name};
use crate::limits;
use crate::machine::Machine;
use crate::model::{Event, Invalid, Principal};
use crate::service::{Events, LockService, NotSent, Scope, ServiceError, Source, Subscription};

impl Node {
    /// Returns a handle for calls of a principal. They are checked like those of a remote caller that has proven to be
    /// that principal. A node without `[auth]` refuses none of them.
    ///
    /// # Errors
    /// The name is not one that a principal can have.
    pub fn service_as(&self, principal: &str) -> Result<Self, Invalid> {
        let refused = |bound| Invalid::new("principal", bound, format!("{principal:?}"));
        let who = Who::Proven(principal_name(principal).map_err(refused)?);
        Ok(Self { caller: Caller { who, ..self.caller.clone() }, ..self.clone() })
    }

    /// Reads the file of `[auth]` again. It applies to calls from now on, and to open subscriptions and waits.
    ///
    /// # Errors
    /// The file cannot be used. Then nothing changes.
    pub fn reload_auth(&self) -> Result<(), AuthError> {
        let Some(auth) = &self.core.auth else { return Ok(()) };
        let Some(before) = auth.reload()? else { return Ok(()) };
        let rules = auth.rules();
        tracing::info!(node = self.core.id, digest = format!("{:016x}", rules.digest()), "the rules have changed");
        let (principals, tokens) = rules.removed_since(&before);
        let mut act = Act::new("reload-rules");
        let removed = [("removed_principals", principals), ("removed_tokens", tokens)];
        for (fact, removed) in removed.into_iter().filter(|(_, removed)| !removed.is_empty()) {
            act = act.with(fact, removed.join(", ")).with("sessions", "none ends early: each lives for its TTL");
        }
        self.audit_own(act);
        Ok(())
    }

    /// Returns the authorizer of the calls on this handle; `None` without `[auth]`.
    ///
    /// # Errors
    /// The caller is not, or no longer, a principal.
    pub(super) fn authorizer(&self) -> Result<Option<Authorizer>, ServiceError> {
        let Some(auth) = &self.core.auth else { return Ok(None) };
        let access = auth.rules();
        let principal = access.principal(&self.caller.who, self.core.clock.wall())?;
        Ok(Some(Authorizer { access, principal }))
    }

    /// Returns the source to which limits apply: the principal of a caller. Without `[auth]`, and for a caller that
    /// proves nothing, it is where the call comes from.
    pub(super) fn source(&self, authorizer: Option<&Authorizer>) -> Source {
        let proven = authorizer.filter(|authorizer| !authorizer.principal.is_anonymous());
        proven.map_or_else(|| self.caller.source.clone(), |authorizer| Source::Principal(authorizer.principal.clone()))
    }

    /// Returns the principal under which a node without `[auth]` records a call: one that another node has proven, or
    /// that the application names.
    pub(super) fn named(&self) -> Option<&Principal> {
        match &self.caller.who {
            Who::Proven(name) => Some(name),
            Who::Local | Who::Anonymous | Who::Token(_) | Who::Certificate { .. } => None,
        }
    }

    /// Refuses a caller without this right on the cluster, which `act` needs.
    pub(super) fn needs(&self, right: ClusterRight, act: &'static str) -> Result<(), ServiceError> {
        let Some(authorizer) = self.authorizer()? else { return Ok(()) };
        authorizer.access.need_cluster(&authorizer.principal, right).map_err(|denied| self.noted(act, denied.into()))
    }

    /// Subscribes a caller to the events that it may see.
    pub(super) fn subscribe_authorized(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let authorizer = self.authorizer()?;
        validate::scope(&subscription.scope)?;
        if let Some(of) = subscription.cluster_id {
            let here = self.core.consensus.cluster_id().borrow().ok_or_else(|| self.not_sent(NotSent::NoLeader))?;
            if of != here {
                let bound = format!("of this cluster, {here:032x}");
                return Err(Invalid::new("position", bound, format!("one of {of:032x}")).into());
            }
        }
        match subscription.scope {
            Scope::SessionEnd(session) => {
                self.watched(subscription.scope, || self.core.shared.hub.of_sessions.end(session))
            }
            Scope::Holds(session) => self.hold_events(session),
            Scope::Namespace { .. } | Scope::Session(_) => {
                subscription.after.map_or(Ok(()), |after| self.core.shared.hub.keeps_after(after))?;
                let watcher =
                    self.core.watchers.admit(self.source(authorizer.as_ref())).map_err(ServiceError::not_sent)?;
                self.watched(subscription.scope.clone(), || {
                    let (events, feed) = self.core.shared.hub.subscribe(subscription, self.info().cut_off());
                    self.spawn(feed.map(|()| drop(watcher)));
                    events
                })
            }
        }
    }

    /// Returns those of the events that the caller may see. They end with an error as soon as the caller may no longer
    /// see them, because of another file of rules or the end of its token. Those of another's session are none, and do
    /// not end with it, as if it did not exist.
    pub(super) fn watched(&self, scope: Scope, events: impl FnOnce() -> Events) -> Result<Events, ServiceError> {
        let Some(auth) = &self.core.auth else { return Ok(events()) };
        let mut changes = auth.changes();
        self.may_watch(&scope).map_err(|error| self.noted("watch", error))?;
        let (mut events, (sender, watched)) = (events(), Events::channel(limits::EVENTS_WATCHED_MAX));
        let (node, mut ended) = (self.clone(), false);
        self.spawn(async move {
            loop {
                let next = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    refused = node.refused(&scope, &mut changes) => Err(refused),
                    next = events.next(), if !ended => match node.may_see(&next, &scope) {
                        Ok(true) => next,
                        Ok(false) => {
                            // The end of a session is the only event of its subscription.
                            ended = next.is_err() || matches!(scope, Scope::SessionEnd(_));
                            continue;
                        }
                        Err(error) => Err(error),
                    },
                };
                let last = next.is_err();
                if !sender.send(next).await || last {
                    return;
                }
            }
        });
        Ok(watched)
    }

    /// Waits until the caller may no longer watch this, and returns why.
    async fn refused(&self, scope: &Scope, changes: &mut watch::Receiver<Arc<Access>>) -> ServiceError {
        loop {
            let left = self.authorizer().ok().flatten().and_then(|authorizer| authorizer.access.ends(&self.caller.who));
            let left_ms = left.map_or(u64::MAX, |end| end.0.saturating_sub(self.core.clock.wall().0));
            // Time on the wall may jump, so a long wait is divided.
            let pause = Duration::from_millis(left_ms.saturating_add(1).min(limits::AUTH_CHECK_MS));
            let looked = if left.is_some() {
                tokio::time::timeout(pause, changes.changed()).await.unwrap_or(Ok(()))
            } else {
                changes.changed().await
            };
            if looked.is_err() {
                return ServiceError::Stopping;
            }
            if let Err(refused) = self.may_watch(scope) {
                return refused;
            }
        }
    }

    fn may_watch(&self, scope: &Scope) -> Result<(), ServiceError> {
        let Some(authorizer) = self.authorizer()? else { return Ok(()) };
        match scope {
            Scope::Namespace { namespace, prefix } => {
                Ok(authorizer.access.need(&authorizer.principal, Right::Read, namespace, On::Prefix(prefix))?)
            }
            // Another's session gets the answer of an unknown one: no event.
            Scope::Session(_) | Scope::SessionEnd(_) | Scope::Holds(_) => Ok(()),
        }
    }

    /// Whether a caller may see what its subscription has next: an event, or the end of a session's events. Any other
    /// error is for every caller.
    fn may_see(&self, next: &Result<Event, ServiceError>, scope: &Scope) -> Result<bool, ServiceError> {
        let Some(authorizer) = self.authorizer()? else { return Ok(true) };
        let event = match next {
            Ok(event) => Some(event),
            Err(ServiceError::Refused(_)) => None,
            Err(_) => return Ok(true),
        };
        Ok(match scope {
            Scope::Namespace { .. } => {
                // An event of a session is about no name, so the caller needs the right on all names.
                let of_session = event.filter(|event| event.subject.lock().is_none());
                let namespace = of_session.and_then(|event| event.namespace.as_ref());
                namespace.is_none_or(|namespace| authorizer.reads_all(namespace))
            }
            Scope::Session(session) => {
                let owned =
                    |machine: &Machine| machine.session_principal(*session).is_some_and(|owner| authorizer.sees(owner));
                self.core.consensus.machine(owned)
            }
            Scope::SessionEnd(session) | Scope::Holds(session) => {
                !self.core.consensus.machine(|machine| authorizer.hides(machine, *session))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Command, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Patience, TakeLease,
    };
    use crate::service::Call;
    use crate::testing::Cluster;

    /// Without rules, the leader records the name that the application gives its calls, also if another node forwards
    /// them.
    #[tokio::test]
    async fn a_forwarded_call_keeps_the_name_of_its_caller() {
        let cluster = Cluster::start(3, None).await.expect("a cluster");
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("legal") };
        let take = TakeLease {
            lock: lock.clone(),
            take: LeaseRequestId(1),
            handle: Handle::from_random(1),
            access: Mode::Exclusive.into(),
            lease_ms: 60_000,
            patience: Patience::Try,
            metadata: Metadata::default(),
            claim_ms: None,
        };
        let follower = cluster.follower().await;
        let caller = follower.service_as("ci").expect("a name");
        let reply = loop {
            // Another node may begin to lead meanwhile.
            if let Ok(reply) = caller.submit(Call::new(Command::TakeLease(take.clone()))).await {
                break reply;
            }
        };
        let has_it = |view: &crate::raft::View| Some(reply.index) <= view.applied;
        drop(follower.views().wait_for(has_it).await.expect("the node runs"));
        let owner = follower.core.consensus.machine(|machine| machine.take_principal(&lock, take.take).cloned());
        assert_eq!(owner.as_ref().map(Principal::as_str), Some("ci"));
    }
}
