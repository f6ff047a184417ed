//! Compares the handles that callers show for the sessions, leases, takes and lost holds that they name.

use super::Node;
use super::authorizer::Authorizer;
use crate::auth::{Right, Who};
use crate::machine::Machine;
use crate::model::{
    Alter, Alteration, Command, DocumentCommand, Handle, LockKey, Namespace, OpenSession, Principal, Refusal,
    SessionId, TakeLease,
};
use crate::service::{Call, Proof, ServiceError};

/// The act of a caller that shows a wrong handle, in the audit log.
const SHOW_HANDLE: &str = "show-handle";

/// A session, with the handle and the namespace that a caller shows for it.
pub(super) type Shown<'a> = (SessionId, &'a Handle, &'a Namespace);

/// Returns what a caller shows for the session that a command or renewal names, if it must prove it.
pub(super) fn shown(session: Option<SessionId>, proof: &Proof) -> Option<Shown<'_>> {
    match proof {
        Proof::Handle { handle, namespace } => Some((session?, handle, namespace)),
        Proof::Trusted => None,
    }
}

/// Removes a handle that was compared, so that neither this node nor the leader compares it again.
pub(super) fn replace_proof(proof: &mut Proof, proven: bool) {
    if proven {
        *proof = Proof::Trusted;
    }
}

/// Returns what a call shows for a session: its proof, or the handle of an attach.
pub(super) fn shown_by(call: &Call) -> Option<Shown<'_>> {
    if let Command::Attach(attach) = &call.command {
        return Some((attach.session, &attach.handle, &attach.namespace));
    }
    shown(call.command.session(), &call.proof)
}

/// Returns the lock and the handle of the lease or document that a command names.
fn lease_shown(command: &Command) -> Option<(&LockKey, &Handle)> {
    let (Command::DropLease { lock, handle } | Command::Document(DocumentCommand::SwapValue { lock, handle, .. })) =
        command
    else {
        return None;
    };
    Some((lock, handle))
}

/// Compares the handle that a command shows for a take, or for the session that lost a hold. Returns the lock, whether
/// the handle is the right one, and the principal of the take or hold, if it is known. `None` if there is nothing that
/// it could prove.
fn compared<'a>(machine: &'a Machine, command: &Command) -> Option<(LockKey, bool, Option<&'a Principal>)> {
    if let Command::CancelTake { lock, take, handle } | Command::TakeLease(TakeLease { lock, take, handle, .. }) =
        command
    {
        let proven = machine.take_proven(lock, *take, handle)?;
        return Some((lock.clone(), proven, machine.take_principal(lock, *take)));
    }
    let Command::Alter(Alter { request, name, what: Alteration::Resume { token, handle, .. }, .. }) = command else {
        return None;
    };
    let lock = LockKey { namespace: machine.namespace_of(request.session)?.clone(), name: name.clone() };
    let (known, owner) = machine.lost_handle(&lock, *token)?;
    Some((lock, known == Some(handle), Some(owner)))
}

/// Whether a command shows a handle that [`compared`] compares.
fn shows_another(command: &Command) -> bool {
    matches!(command, Command::CancelTake { .. } | Command::TakeLease(_))
        || matches!(command, Command::Alter(Alter { what: Alteration::Resume { .. }, .. }))
}

impl Node {
    /// Refuses a command that shows the handle of something else than its session, if its source has shown too many
    /// wrong ones, and counts a wrong one.
    pub(super) fn limit_other_guesses(
        &self,
        authorizer: Option<&Authorizer>,
        command: &Command,
    ) -> Result<(), ServiceError> {
        if let Command::OpenSession(open) = command {
            return self.limit_opens(authorizer, open);
        }
        if let Some((lock, handle)) = lease_shown(command) {
            return self.limit_lease_guesses(authorizer, lock, handle);
        }
        // Most commands show nothing, and need not wait for the state.
        if !shows_another(command) || self.caller.who == Who::Local {
            return Ok(());
        }
        let made = |owner: &Principal| authorizer.is_some_and(|authorizer| authorizer.made(owner));
        let guessed = self.core.consensus.machine(|machine| {
            let (lock, proven, owner) = compared(machine, command)?;
            let owned = |owner: &Principal| authorizer.is_none_or(|authorizer| authorizer.owns(&lock, owner));
            // The handle of another principal is not confirmed, so it counts as wrong.
            let right = proven && owner.is_none_or(owned);
            owner.is_none_or(|owner| !made(owner)).then_some(!right)
        });
        let Some(wrong) = guessed else { return Ok(()) };
        self.limit_wrong(authorizer, wrong)?;
        if wrong {
            drop(self.noted(SHOW_HANDLE, Refusal::WrongHandle.into()));
        }
        Ok(())
    }

    /// Limits the handles that a source shows for a lock while a lease or document holds it whose handle could be
    /// guessed. The handles of another principal prove nothing, so those cannot be. A caller that may not read the name
    /// must not learn whether there is such a lease, so its handles are always limited.
    pub(super) fn limit_lease_guesses(
        &self,
        authorizer: Option<&Authorizer>,
        lock: &LockKey,
        handle: &Handle,
    ) -> Result<(), ServiceError> {
        let made = |owner: &Principal| authorizer.is_some_and(|authorizer| authorizer.made(owner));
        let owned = |owner: &Principal| authorizer.is_none_or(|authorizer| authorizer.owns(lock, owner));
        let reads = authorizer.is_none_or(|authorizer| authorizer.has(Right::Read, lock));
        let of_handle = |owner: &Principal| authorizer.is_none() || owner.is_anonymous();
        let (wrong, own, guessable) = self.core.consensus.machine(|machine| {
            let owner = machine.lease_principal(lock, handle);
            (!owner.is_some_and(owned), owner.is_some_and(made), machine.lease_principals(lock).any(of_handle))
        });
        if own || (reads && !guessable) {
            return Ok(());
        }
        self.limit_wrong(authorizer, wrong)
    }

    /// Limits the sessions of others that a source finds by opening one with the same handle.
    fn limit_opens(&self, authorizer: Option<&Authorizer>, open: &OpenSession) -> Result<(), ServiceError> {
        let made = |owner: &Principal| authorizer.is_some_and(|authorizer| authorizer.made(owner));
        let found = |machine: &Machine| machine.opened_by_another(open).is_some_and(|owner| !made(owner));
        self.limit_wrong(authorizer, self.core.consensus.machine(found))
    }

    fn limit_wrong(&self, authorizer: Option<&Authorizer>, wrong: bool) -> Result<(), ServiceError> {
        if self.caller.who == Who::Local {
            // The application that embeds the node needs no guesses.
            return Ok(());
        }
        let (source, now) = (self.source(authorizer), self.core.clock.now());
        self.core.wrong_handles.check(&source, now).map_err(ServiceError::not_sent)?;
        if wrong {
            self.core.wrong_handles.count(&source, now);
        }
        Ok(())
    }

    /// Refuses a wrong handle before any other part of the call is read, and counts it. A source that has shown too
    /// many is refused before its handle is compared. A session never changes its handle, so this state suffices to
    /// refuse one, or to prove it, even if it is old. The handle of another's session is not compared, because it must
    /// not be confirmed.
    ///
    /// Returns true if the handle was compared and is right. False means that this node does not have the session, or
    /// that there is nothing to compare here: the leader must compare.
    pub(super) fn limit_guesses(
        &self,
        authorizer: Option<&Authorizer>,
        shown: Option<Shown<'_>>,
    ) -> Result<bool, ServiceError> {
        let Some((session, handle, namespace)) = shown else { return Ok(false) };
        let (source, now) = (self.source(authorizer), self.core.clock.now());
        // The application that embeds the node needs no guesses.
        let guesses = self.caller.who != Who::Local;
        if guesses {
            self.core.wrong_handles.check(&source, now).map_err(ServiceError::not_sent)?;
        }
        let compared = self.core.consensus.machine(|machine| {
            if authorizer.is_some_and(|authorizer| authorizer.session(machine, session).is_some()) {
                return Ok(false);
            }
            let known = machine.namespace_of(session).is_some();
            machine.proves(session, handle, namespace).map(|()| known)
        });
        match compared {
            Err(refusal @ Refusal::WrongHandle) => {
                if guesses {
                    self.core.wrong_handles.count(&source, now);
                }
                Err(self.noted(SHOW_HANDLE, refusal.into()))
            }
            proven => Ok(proven.unwrap_or(false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WRONG_HANDLES_A_SECOND;
    use crate::model::{Instance, Metadata, Outcome, SessionClose};
    use crate::service::LockService;
    use crate::testing::Cluster;

    /// The application that embeds the node shows any number of wrong handles: each is refused as wrong, and no limit
    /// refuses it before it is compared.
    #[tokio::test]
    async fn wrong_handles_of_the_application_are_not_limited() {
        let cluster = Cluster::start(1, None).await.expect("a cluster");
        let node = cluster.leader().await;
        let namespace = Namespace::default();
        let open = OpenSession {
            namespace: namespace.clone(),
            handle: Handle::from_random(1),
            instance: Instance(1),
            ttl_ms: 60_000,
            disconnect_grace_ms: None,
            metadata: Metadata::default(),
            accepts_hand_over: false,
        };
        let reply = node.submit(Call::new(Command::OpenSession(open))).await.expect("opened");
        let Outcome::Opened { session, .. } = reply.outcome else { panic!("{reply:?}") };
        for _ in 0..3 * WRONG_HANDLES_A_SECOND {
            let close = Command::CloseSession { session, end: SessionClose::Done };
            let proof = Proof::Handle { handle: Handle::from_random(2), namespace: namespace.clone() };
            let refused = node.submit(Call { proof, ..Call::new(close) }).await;
            assert_eq!(refused, Err(ServiceError::Refused(Refusal::WrongHandle)));
        }
    }
}
