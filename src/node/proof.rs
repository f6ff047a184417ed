//! Compares what callers show for the sessions that they name.

use super::Node;
use super::authorizer::Authorizer;
use crate::model::{Command, Handle, Namespace, Refusal, SessionId};
use crate::service::{Call, Proof, ServiceError};

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

impl Node {
    /// Refuses a wrong handle before any other part of the call is read, and counts it. A source that has shown too
    /// many is refused before its handle is compared. A session never changes its handle, so this state suffices to
    /// refuse one, or to prove it, even if it is old.
    ///
    /// Returns true if the handle was compared and is right. False means that this node does not have the session, or
    /// that there is nothing to compare here: the leader must compare.
    pub(super) fn limit_guesses(
        &self,
        authorizer: Option<&Authorizer>,
        shown: Option<Shown<'_>>,
    ) -> Result<bool, ServiceError> {
        let Some((session, handle, namespace)) = self.provable(authorizer, shown) else { return Ok(false) };
        let (source, now) = (self.source(authorizer), self.core.clock.now());
        self.core.wrong_handles.check(&source, now).map_err(ServiceError::not_sent)?;
        let compared = self.core.consensus.machine(|machine| {
            let known = machine.namespace_of(session).is_some();
            machine.proves(session, handle, namespace).map(|()| known)
        });
        match compared {
            Err(refusal @ Refusal::WrongHandle) => {
                self.core.wrong_handles.count(&source, now);
                Err(refusal.into())
            }
            proven => Ok(proven.unwrap_or(false)),
        }
    }

    /// Returns what a caller shows for a session, unless the session is another's: its handle must not be confirmed.
    fn provable<'a>(&self, authorizer: Option<&Authorizer>, shown: Option<Shown<'a>>) -> Option<Shown<'a>> {
        let anothers = |authorizer: &Authorizer, session| {
            self.core.consensus.machine(|machine| authorizer.session(machine, session))
        };
        shown.filter(|(session, ..)| authorizer.and_then(|authorizer| anothers(authorizer, *session)).is_none())
    }
}
