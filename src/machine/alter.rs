//! What a session does with its holds: the way in, common to all, and the proof that a hold is its own.

use super::Machine;
use super::requests::of_alter;
use super::state::Holder;
use crate::model::{Alter, Alteration, FencingToken, LockKey, Outcome, Principal, Refusal, SessionId};

/// One change of one lock, as its steps need it.
pub(super) struct HoldChange<'a> {
    pub(super) principal: &'a Principal,
    pub(super) alter: &'a Alter,
    pub(super) key: &'a LockKey,
    pub(super) fingerprint: u64,
}

impl HoldChange<'_> {
    /// Whose change it is.
    pub(super) fn session(&self) -> SessionId {
        self.alter.request.session
    }
}

impl Machine {
    pub(super) fn alter(&mut self, principal: &Principal, alter: &Alter) -> Outcome {
        let fingerprint = of_alter(alter);
        let namespace = match self.begin(alter.request, alter.answered_below, fingerprint) {
            Ok(namespace) => namespace,
            Err(known) => return known,
        };
        let key = LockKey { namespace, name: alter.name.clone() };
        self.expire_due_at(&key);
        let change = HoldChange { principal, alter, key: &key, fingerprint };
        let outcome = match &alter.what {
            Alteration::Downgrade { token } => self.downgrade(&change, *token),
            Alteration::Upgrade { token, patience } => self.upgrade(&change, *token, *patience),
            Alteration::Resume { token, handle, lease_ms } => self.resume(&change, *token, handle, *lease_ms),
            Alteration::SetValue { token, value } => self.set_value(&change, *token, value.as_ref()),
            Alteration::ReturnPermits { token, count } => self.return_permits(&change, *token, *count),
        };
        let lives =
            self.sessions.get(&alter.request.session).is_some_and(|session| session.is_active(alter.request.number));
        if lives { outcome } else { self.finish(alter.request, fingerprint, outcome) }
    }

    /// The session's own hold with this token, or what stands there instead.
    pub(super) fn own_hold(&self, change: &HoldChange<'_>, token: FencingToken) -> Result<&Holder, Refusal> {
        let mine = |holder: &Holder| holder.request.claim.session() == Some(change.session());
        let holder = self.locks.get(change.key).and_then(|lock| lock.holders.get(&token)).map(Box::as_ref);
        holder.filter(|holder| mine(holder)).ok_or_else(|| self.not_held(change.key, mine))
    }
}
