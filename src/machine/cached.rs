//! Cached holds: a session keeps them between uses, until another request waits for the name.
//!
//! - A hold is cached from its grant on, until any change of it.
//! - A cached hold is recalled at the end of the command after which a request waits behind it, whether a wait began or
//!   the head of a queue was granted. It stays recalled even if that request leaves.
//! - A try that would be first behind a cached hold waits briefly, so that its session can release it.

use super::Machine;
use crate::model::{EventKind, FencingToken, LockKey, Mode, Outcome, SessionId, Subject};
use crate::state::{Change, Holder, Lock, RecordKey};

impl Lock {
    /// The cached hold of this lock. It is the lock's only hold.
    fn cached(&self) -> Option<(FencingToken, &Holder)> {
        let (token, holder) = self.holders.first_key_value()?;
        Some((*token, &**holder)).filter(|(_, holder)| holder.is_cached())
    }

    /// The token of a cached hold that is not recalled although a request waits behind it.
    fn needs_recall(&self) -> Option<FencingToken> {
        let (token, holder) = self.cached().filter(|_| !self.queue.is_empty())?;
        (!holder.is_recalled()).then_some(token)
    }

    /// Whether a new request would be first in the queue behind a cached hold. Then even a try waits briefly.
    pub(super) fn is_first_behind_cached(&self) -> bool {
        self.queue.is_empty() && self.cached().is_some()
    }
}

impl Holder {
    /// Clears the cached and recalled marks of a hold that changes or ends.
    pub(super) fn forget_cached(&mut self) {
        if let Some(extras) = &mut self.request.extras {
            extras.cached = false;
        }
        if let Some(extras) = &mut self.extras {
            extras.recalled = false;
        }
        self.tidy_extras();
    }

    /// What violates the rules of cached holds. `awaited` says whether a request waits behind this hold.
    pub(super) fn wrong_about_cached(&self, awaited: bool) -> Option<&'static str> {
        if !self.is_cached() {
            return self.is_recalled().then_some("a hold is recalled and not cached");
        }
        // A hold that was handed over may keep its name closed for its previous holder.
        let ends = self.ends_automatically() || self.request.choices().delay_ms != 0;
        let shared = self.request.mode != Mode::Exclusive || self.in_set() || 1 < self.entries().count();
        let named = self.request.owner.is_some() || self.request.choices().parent.is_some();
        let unsessioned = self.request.claim.request().is_none();
        if ends || shared || named || unsessioned || self.request.choices().value.is_some() {
            return Some("a cached hold has a property that no cached hold may have");
        }
        (awaited && !self.is_recalled()).then_some("a request waits behind a cached hold that is not recalled")
    }
}

impl Machine {
    /// Records that a hold or a wait was added to this lock, so that it is checked at the end of the command.
    pub(super) fn came_to(&mut self, key: &LockKey) {
        if self.state.lock(key).and_then(Lock::needs_recall).is_some() {
            self.to_recall.insert(key.clone());
        }
    }

    /// Recalls the cached holds behind which a request waits.
    pub(super) fn recall_awaited(&mut self) {
        while let Some(key) = self.to_recall.pop_first() {
            let Some(token) = self.state.lock(&key).and_then(Lock::needs_recall) else { continue };
            let Some(holder) = self.state.holder_mut(&key, token) else { continue };
            holder.extras_mut().recalled = true;
            let claim = holder.request.claim;
            self.state.index.change_recalled(claim.session(), token, Change::Came);
            self.state.mark(RecordKey::Holder(key.clone(), token));
            self.event(Some(key.namespace.clone()), Subject::hold(&key, claim, token), EventKind::Recalled);
        }
    }

    /// Ends the caching of a hold that is changed.
    pub(super) fn end_cached(&mut self, key: &LockKey, token: FencingToken) {
        let holder = self.state.holder_mut(key, token);
        let Some(holder) = holder.filter(|holder| holder.is_cached()) else { return };
        let session = holder.request.claim.session();
        holder.forget_cached();
        self.state.mark(RecordKey::Holder(key.clone(), token));
        self.state.index.change_recalled(session, token, Change::Went);
    }

    /// The recalled holds that an answer to this session carries: their tokens, in ascending order.
    pub(super) fn recalled_with(&self, session: Option<SessionId>, outcome: &Outcome) -> Vec<FencingToken> {
        let carries = matches!(
            outcome,
            Outcome::Granted(_) | Outcome::GrantedSet(_) | Outcome::Renewed { .. } | Outcome::Attached { .. }
        );
        let recalled = session.filter(|_| carries).and_then(|session| self.state.index.recalled.get(&session));
        recalled.into_iter().flatten().copied().collect()
    }

    /// The answer to a wait that has timed out. A try is refused, with the holder of the lock.
    pub(super) fn ran_out(&self, key: &LockKey, sequence: u64) -> Outcome {
        let waiter = self.state.waiter(key, sequence);
        let Some(waiter) = waiter.filter(|waiter| waiter.tries) else { return Outcome::TimedOut };
        let lacked = waiter.set_request().map_or(key, |set| self.first_lacking(set, (key, sequence)));
        let lacking = self.state.waiter(lacked, sequence).unwrap_or(waiter);
        Outcome::Refused(self.held_by_another(lacked, lacking.request.mode, None))
    }
}
