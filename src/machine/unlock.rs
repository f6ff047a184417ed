//! Commands that free many documents. Each frees a bounded number at once, and later sweeps free the others.
//!
//! A command that finds a document which is still to be freed frees it first, so that no command sees a freed document
//! as held.

use std::ops::Bound;

use super::Machine;
use crate::limits;
use crate::model::{EndReason, FencingToken, LockKey, LockName, Namespace, Outcome};
use crate::state::{DeadlineOf, Unlocking, WhichHeld, looked_at};

impl Machine {
    /// Frees these documents. Returns how many there were, including those that are left to the sweep.
    pub(super) fn unlock_many(&mut self, namespace: &Namespace, which: WhichHeld) -> Outcome {
        let newest = FencingToken::new(self.state.globals.epoch, self.state.globals.tokens);
        let (namespace, since, next) = (namespace.clone(), self.state.globals.now, LockName::least());
        let unlocking = Unlocking { namespace, which, newest, since, next };
        let all = self.meant(&unlocking).filter_map(|(name, token)| Some((name, token?)));
        // Documents that an earlier command freed are not counted twice.
        let locks = all.filter(|(name, token)| !self.is_freed(&unlocking.namespace, name, *token)).count() as u64;
        let (_, left) = self.unlock_some(unlocking);
        if let Some(left) = left {
            self.change_unlocking(|unlocking| {
                // The rest of an earlier command with the same selection is part of this one.
                unlocking.retain(|other| other.namespace != left.namespace || other.which != left.which);
                unlocking.push(left);
            });
        }
        Outcome::Freed { locks }
    }

    /// Continues the oldest of the unfinished commands. Returns how many documents it looked at.
    pub(super) fn unlock_more(&mut self) -> usize {
        let Some(first) = self.state.globals.unlocking.first().cloned() else { return 0 };
        let (looked_at, left) = self.unlock_some(first);
        self.change_unlocking(|unlocking| match left {
            Some(left) => unlocking[0] = left,
            None => drop(unlocking.remove(0)),
        });
        looked_at
    }

    /// Changes the list of unfinished commands.
    fn change_unlocking(&mut self, change: impl FnOnce(&mut Vec<Unlocking>)) {
        let before = self.state.globals.unlocking.first().map(|first| first.since);
        change(&mut self.state.globals.unlocking);
        let after = self.state.globals.unlocking.first().map(|first| first.since);
        self.state.index.move_deadline(before, after, DeadlineOf::Unlocking);
    }

    /// Frees the document of this lock if an unfinished command freed it.
    pub(super) fn unlock_at(&mut self, key: &LockKey) {
        let held = self.state.lock(key).and_then(|lock| lock.holders.first_key_value());
        let Some(token) = held.map(|(token, _)| *token) else { return };
        if self.is_freed(&key.namespace, &key.name, token) {
            self.end_hold(key, token, EndReason::Released, None);
        }
    }

    /// Whether an unfinished command freed this document.
    fn is_freed(&self, namespace: &Namespace, name: &LockName, token: FencingToken) -> bool {
        self.state.globals.unlocking.iter().any(|unlocking| {
            let left = unlocking.namespace == *namespace && unlocking.next <= *name;
            left && self.meant_at(unlocking, name) == Some(token)
        })
    }

    /// Looks at a bounded number of names. Returns their number, and what is left of the command.
    fn unlock_some(&mut self, mut unlocking: Unlocking) -> (usize, Option<Unlocking>) {
        let max = limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX;
        let mut names: Vec<(LockName, Option<FencingToken>)> = self.meant(&unlocking).take(max + 1).collect();
        let next = if names.len() <= max { None } else { names.pop() };
        for (name, token) in &names {
            if let Some(token) = token {
                let key = LockKey { namespace: unlocking.namespace.clone(), name: name.clone() };
                self.end_hold(&key, *token, EndReason::Released, None);
            }
        }
        let left = next.map(|(next, _)| {
            unlocking.next = next;
            unlocking
        });
        (names.len().max(1), left)
    }

    /// Names that the command may select, from the first that was not looked at. Each comes with the token of the
    /// selected hold, if any.
    fn meant<'a>(&'a self, of: &'a Unlocking) -> impl Iterator<Item = (LockName, Option<FencingToken>)> + 'a {
        let (process, stamp) = match &of.which {
            WhichHeld::Process(process, _) => {
                (Some(self.state.index.documents.held_by(&of.namespace, process.as_str())), None)
            }
            WhichHeld::Stamp(ts) => (None, Some(self.state.index.documents.stamped(&of.namespace, *ts, &of.next))),
        };
        let from = (Bound::Included(&of.next), Bound::Unbounded);
        let process = process.flatten().into_iter().flat_map(move |held| held.range::<LockName, _>(from));
        let names = process.map(|(name, _)| name).chain(stamp.into_iter().flatten());
        names.map(move |name| {
            looked_at();
            (name.clone(), self.meant_at(of, name))
        })
    }

    /// The token of the hold of this name, if the command selects it.
    fn meant_at(&self, of: &Unlocking, name: &LockName) -> Option<FencingToken> {
        let key = LockKey { namespace: of.namespace.clone(), name: name.clone() };
        let (token, holder) = self.state.lock(&key)?.holders.first_key_value()?;
        let mark = holder.document().filter(|_| *token <= of.newest)?;
        let meant = match &of.which {
            WhichHeld::Process(process, term) => {
                let in_term = term.is_none_or(|term| mark.term.is_some_and(|of| of <= term));
                *holder.request.metadata.process == *process.as_str() && in_term
            }
            WhichHeld::Stamp(ts) => mark.ts == *ts,
        };
        meant.then_some(*token)
    }
}
