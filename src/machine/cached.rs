//! Cached holds: their sessions keep them between uses, until another request waits for the name.
//!
//! - A hold is cached from its grant on, and no longer after any change of it.
//! - One that another request waits behind is recalled when the command that leaves it so is over, whatever brought it about: a
//!   wait that began, or a grant to the head of a queue. It stays recalled, also where that waiter goes.
//! - A try that would be first behind one waits a moment, for its session to give it back.

use super::Machine;
use crate::model::{EventKind, FencingToken, LockKey, Mode, Outcome, SessionId, Subject};
use crate::state::{Change, Holder, Lock, RecordKey};

impl Lock {
    /// The cached hold of it, which is its only one.
    fn cached(&self) -> Option<(FencingToken, &Holder)> {
        let (token, holder) = self.holders.first_key_value()?;
        Some((*token, &**holder)).filter(|(_, holder)| holder.is_cached())
    }

    /// Whether a request waits behind a cached hold that is not recalled.
    fn needs_recall(&self) -> bool {
        !self.queue.is_empty() && self.cached().is_some_and(|(_, holder)| !holder.is_recalled())
    }

    /// Whether a new request would be first in the queue behind a cached hold: then even a try waits a moment.
    pub(super) fn is_first_behind_cached(&self) -> bool {
        self.queue.is_empty() && self.cached().is_some()
    }
}

impl Holder {
    /// It is an ordinary hold from now on, or one that has ended.
    pub(super) fn forget_cached(&mut self) {
        if let Some(extras) = &mut self.request.extras {
            extras.cached = false;
        }
        if let Some(extras) = &mut self.extras {
            extras.recalled = false;
        }
        self.tidy_extras();
    }

    /// What is wrong with a cached hold, with or without waiters behind it.
    pub(super) fn wrong_about_cached(&self, awaited: bool) -> Option<&'static str> {
        if !self.is_cached() {
            return self.is_recalled().then_some("a hold is recalled and not cached");
        }
        // One that was handed over may keep its name closed for what was held before.
        let ends = self.ends_by_itself() || self.request.choices().delay_ms != 0;
        let shared = self.request.mode != Mode::Exclusive || self.in_set() || 1 < self.entries().count();
        let named = self.request.owner.is_some() || self.request.choices().parent.is_some();
        let unsessioned = self.request.claim.request().is_none();
        if ends || shared || named || unsessioned || self.request.choices().value.is_some() {
            return Some("a cached hold has what none may have");
        }
        (awaited && !self.is_recalled()).then_some("a request waits behind a cached hold that is not recalled")
    }
}

impl Machine {
    /// A hold or a wait came to this lock: looks at it again when the command is over.
    pub(super) fn came_to(&mut self, key: &LockKey) {
        if self.state.lock(key).is_some_and(|lock| lock.needs_recall()) {
            self.to_recall.insert(key.clone());
        }
    }

    /// Recalls the cached holds that a request waits behind.
    pub(super) fn recall_awaited(&mut self) {
        while let Some(key) = self.to_recall.pop_first() {
            let Some(lock) = self.state.locks.get_mut(&key).filter(|lock| lock.needs_recall()) else { continue };
            let Some((token, _)) = lock.cached() else { continue };
            let Some(holder) = lock.holders.get_mut(&token) else { continue };
            holder.extras_mut().recalled = true;
            let claim = holder.request.claim;
            self.state.index.change_recalled(claim.session(), token, Change::Came);
            self.state.mark(RecordKey::Holder(key.clone(), token));
            self.event(Some(key.namespace.clone()), Subject::hold(&key, claim, token), EventKind::Recalled);
        }
    }

    /// A hold is changed: it is no longer cached.
    pub(super) fn end_cached(&mut self, key: &LockKey, token: FencingToken) {
        let holder = self.state.holder_mut(key, token);
        let Some(holder) = holder.filter(|holder| holder.is_cached()) else { return };
        let session = holder.request.claim.session();
        holder.forget_cached();
        self.state.mark(RecordKey::Holder(key.clone(), token));
        self.state.index.change_recalled(session, token, Change::Went);
    }

    /// The tokens of this session's recalled holds, the oldest first.
    pub(super) fn recalled_of(&self, session: SessionId) -> Vec<FencingToken> {
        self.state.index.recalled.get(&session).into_iter().flatten().copied().collect()
    }

    /// What an answer to this session carries of its recalled holds.
    pub(super) fn recalled_with(&self, session: Option<SessionId>, outcome: &Outcome) -> Vec<FencingToken> {
        let carries = matches!(
            outcome,
            Outcome::Granted(_) | Outcome::GrantedSet(_) | Outcome::Renewed { .. } | Outcome::Attached { .. }
        );
        session.filter(|_| carries).map_or(Vec::new(), |session| self.recalled_of(session))
    }

    /// The answer to a wait that has run out: to a try, who holds the lock.
    pub(super) fn ran_out(&self, key: &LockKey, sequence: u64) -> Outcome {
        let waiter = self.state.waiter(key, sequence);
        let Some(waiter) = waiter.filter(|waiter| waiter.tries) else { return Outcome::TimedOut };
        let lacked = waiter.set_request().map_or(key, |set| self.first_lacking(set, (key, sequence)));
        Outcome::Refused(self.held_or_kept_closed(lacked))
    }
}
