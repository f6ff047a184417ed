//! The text kept with a hold: set by its holder, shown to everybody. Leader election is made of it.

use super::alter::HoldChange;
use super::{Machine, RecordKey};
use crate::model::{EventKind, FencingToken, LockKey, LockValue, Outcome, Refusal, Subject};

impl Machine {
    pub(super) fn set_value(
        &mut self,
        change: &HoldChange<'_>,
        token: FencingToken,
        value: Option<&LockValue>,
    ) -> Outcome {
        let key = change.key;
        if let Err(refusal) = self.own_hold(change, token) {
            return Outcome::Refused(refusal);
        }
        self.end_cached(key, token);
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder else { return Outcome::Refused(Refusal::NotHeld { lock: key.clone() }) };
        let claim = holder.request.claim;
        if holder.set_value(value) {
            self.mark_dirty(RecordKey::Holder(key.clone(), token));
            self.event(Some(key.namespace.clone()), Subject::hold(key, claim, token), EventKind::ValueChanged);
        }
        Outcome::Done
    }

    /// The text of the first holder that has one.
    pub(super) fn value_of(&self, key: &LockKey) -> Option<LockValue> {
        self.locks.get(key)?.holders.values().find_map(|holder| holder.request.choices().value.clone())
    }
}
