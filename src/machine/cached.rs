//! Cached holds: their sessions keep them between uses, until another request waits for the name.
//!
//! - A hold is cached from its grant on, and no longer after any change of it.
//! - One that another request waits behind is recalled when the command that leaves it so is over, whatever brought it about: a
//!   wait that began, or a grant to the head of a queue. It stays recalled, also where that waiter goes.
//! - A try that would be first behind one waits a moment, for its session to give it back.

use std::collections::{BTreeMap, BTreeSet};

use super::lock::Lock;
use super::queue::request_of_set;
use super::state::{Holder, request_of};
use super::{Machine, RecordKey};
use crate::model::{EventKind, FencingToken, LockKey, Mode, Outcome, SessionId, Subject};

/// Recalled holds, by their session: derived.
pub(super) type Recalled = BTreeMap<SessionId, BTreeSet<FencingToken>>;

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
    /// Whether its session keeps it between uses.
    pub(super) fn is_cached(&self) -> bool {
        self.request.choices().cached
    }

    /// Whether its session is to give it back.
    pub(super) fn is_recalled(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.recalled)
    }

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
        let unsessioned = request_of(self.request.claim).is_none();
        if ends || shared || named || unsessioned || self.request.choices().value.is_some() {
            return Some("a cached hold has what none may have");
        }
        (awaited && !self.is_recalled()).then_some("a request waits behind a cached hold that is not recalled")
    }
}

impl Machine {
    /// A hold or a wait came to this lock: looks at it again when the command is over.
    pub(super) fn came_to(&mut self, key: &LockKey) {
        if self.locks.get(key).is_some_and(|lock| lock.needs_recall()) {
            self.to_recall.insert(key.clone());
        }
    }

    /// Recalls the cached holds that a request waits behind.
    pub(super) fn recall_awaited(&mut self) {
        while let Some(key) = self.to_recall.pop_first() {
            let Some(lock) = self.locks.get_mut(&key).filter(|lock| lock.needs_recall()) else { continue };
            let Some((token, _)) = lock.cached() else { continue };
            let Some(holder) = lock.holders.get_mut(&token) else { continue };
            holder.extras_mut().recalled = true;
            let claim = holder.request.claim;
            if let Some(session) = claim.session() {
                self.recalled.entry(session).or_default().insert(token);
            }
            self.mark_dirty(RecordKey::Holder(key.clone(), token));
            self.event(Some(key.namespace.clone()), Subject::hold(&key, claim, token), EventKind::Recalled);
        }
    }

    /// A hold is changed: it is no longer cached.
    pub(super) fn end_cached(&mut self, key: &LockKey, token: FencingToken) {
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder.filter(|holder| holder.is_cached()) else { return };
        let session = holder.request.claim.session();
        holder.forget_cached();
        self.mark_dirty(RecordKey::Holder(key.clone(), token));
        self.not_recalled(session, token);
    }

    /// This hold has ended, or is an ordinary one now.
    pub(super) fn not_recalled(&mut self, session: Option<SessionId>, token: FencingToken) {
        let Some(session) = session else { return };
        let Some(tokens) = self.recalled.get_mut(&session) else { return };
        tokens.remove(&token);
        if tokens.is_empty() {
            self.recalled.remove(&session);
        }
    }

    /// The index as the holds say that it should be.
    pub(super) fn derived_recalled(&self) -> Recalled {
        let mut recalled = Recalled::new();
        for (token, holder) in self.locks.values().flat_map(|lock| &lock.holders) {
            if let Some(session) = holder.request.claim.session().filter(|_| holder.is_recalled()) {
                recalled.entry(session).or_default().insert(*token);
            }
        }
        recalled
    }

    /// The tokens of this session's recalled holds, the oldest first.
    pub(super) fn recalled_of(&self, session: SessionId) -> Vec<FencingToken> {
        self.recalled.get(&session).into_iter().flatten().copied().collect()
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
        let waiter = self.locks.get(key).and_then(|lock| lock.queue.get(&sequence));
        let Some(waiter) = waiter.filter(|waiter| waiter.tries) else { return Outcome::TimedOut };
        let request = request_of_set(waiter);
        let lacks = |key: &LockKey| {
            let lock = self.locks.get(key);
            request.zip(lock).is_some_and(|(set, lock)| !self.member_fits(key, lock, sequence, set.session))
        };
        let members = request.map_or(Vec::new(), |set| self.members_waiting(set, sequence));
        let lacked = members.into_iter().find(lacks);
        Outcome::Refused(self.held_or_kept_closed(lacked.as_ref().unwrap_or(key)))
    }
}
