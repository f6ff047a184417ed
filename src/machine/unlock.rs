//! Commands that free many documents. Each frees a bounded number at once, and later sweeps free the others.
//!
//! A command that finds a document which is still to be freed frees it first, so that no command sees a freed document
//! as held.

use std::ops::Bound;

use super::Machine;
use crate::limits;
use crate::model::{EndReason, FencingToken, LockKey, LockName, Namespace, Outcome, QuotaKind, Refusal};
use crate::state::{DeadlineOf, Holder, Lock, Unlocking, WhichHeld, looked_at};

impl Machine {
    /// Frees these documents. Returns how many there were, including those that are left to the sweep. Refuses a
    /// command on more documents than are freed at once if too many of those are in the entry or unfinished, or if
    /// those of the entry have looked at too many documents.
    pub(super) fn unlock_many(&mut self, namespace: &Namespace, which: WhichHeld) -> Result<Outcome, Refusal> {
        let unlocking = self.unlocking(namespace, which);
        let at_once = limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX;
        if self.names(&unlocking).nth(at_once).is_some() {
            self.one_more_unlock(&unlocking.namespace, self.large_unlocks.iter())?;
            if limits::UNLOCKS_LOOKED_MAX <= self.unlocks_looked {
                let limit = limits::UNLOCKS_OF_MANY_MAX as u64;
                return Err(Refusal::Quota { what: QuotaKind::UnlocksOfMany, limit });
            }
            self.large_unlocks.push(unlocking.namespace.clone());
        }
        let (mut locks, mut leaves_some, mut looked) = (0, false, 0);
        let unfinished = self.unfinished_in(&unlocking.namespace);
        for (at, (name, held)) in self.meant(&unlocking).enumerate() {
            // Documents that an earlier command freed are not counted twice.
            if held.is_some_and(|held| !is_freed(&unfinished, name, held)) {
                locks += 1;
                leaves_some |= at_once <= at;
            }
            looked = at + 1;
        }
        self.unlocks_looked += looked;
        if leaves_some {
            let others = self.state.globals.unlocking.iter().filter(|other| !unlocking.includes(other));
            self.one_more_unlock(&unlocking.namespace, others.map(|other| &other.namespace))?;
        }
        let (_, left) = self.unlock_some(unlocking);
        if let Some(left) = left.filter(|_| leaves_some) {
            self.change_unlocking(|unlocking| {
                unlocking.retain(|other| !left.includes(other));
                unlocking.push(left);
            });
        }
        Ok(Outcome::Freed { locks })
    }

    /// A command that frees these documents now.
    fn unlocking(&self, namespace: &Namespace, which: WhichHeld) -> Unlocking {
        let newest = FencingToken::new(self.state.globals.epoch, self.state.globals.tokens);
        let (namespace, since, next) = (namespace.clone(), self.state.globals.now, LockName::least());
        Unlocking { namespace, which, newest, since, next }
    }

    /// Whether a command that frees these documents finds one among the first that it looks at.
    pub(super) fn frees_some(&self, namespace: &Namespace, which: WhichHeld) -> bool {
        let unlocking = self.unlocking(namespace, which);
        let mut first = self.meant(&unlocking).take(limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX);
        first.any(|(_, held)| held.is_some())
    }

    /// Refuses one more large command of this namespace if too many of these are of the same namespace, or if they are
    /// too many together. All unfinished ones are in one record, so a bound for each namespace is not enough.
    fn one_more_unlock<'a>(
        &self,
        namespace: &Namespace,
        others: impl Iterator<Item = &'a Namespace>,
    ) -> Result<(), Refusal> {
        let (mut own, mut all) = (0, 0);
        for other in others {
            (own, all) = (own + u64::from(other == namespace), all + 1);
        }
        self.quotas.one_more(QuotaKind::UnlocksOfMany, own)?;
        let limit = limits::UNLOCKS_OF_MANY_ALL_MAX as u64;
        if all < limit { Ok(()) } else { Err(Refusal::Quota { what: QuotaKind::UnlocksOfMany, limit }) }
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
        let held = self.state.lock(key).and_then(Lock::first_held);
        let freed = held.filter(|held| is_freed(&self.unfinished_in(&key.namespace), &key.name, *held));
        if let Some(token) = freed.map(|(token, _)| token) {
            self.end_hold(key, token, EndReason::Released, None);
        }
    }

    /// The unfinished commands of this namespace.
    fn unfinished_in(&self, namespace: &Namespace) -> Vec<&Unlocking> {
        self.state.globals.unlocking.iter().filter(|unlocking| unlocking.namespace == *namespace).collect()
    }

    /// Looks at a bounded number of names. Returns their number, and what is left of the command.
    fn unlock_some(&mut self, mut unlocking: Unlocking) -> (usize, Option<Unlocking>) {
        let max = limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX;
        let names = self.meant(&unlocking).map(|(name, held)| (name.clone(), held.map(|(token, _)| token)));
        let mut names: Vec<(LockName, Option<FencingToken>)> = names.take(max + 1).collect();
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

    /// Names that the command may select, from the first that was not looked at.
    fn names<'a>(&'a self, of: &'a Unlocking) -> impl Iterator<Item = &'a LockName> + use<'a> {
        let (process, stamp) = match &of.which {
            WhichHeld::Process(process, _) => {
                (Some(self.state.index.documents.held_by(&of.namespace, process.as_str())), None)
            }
            WhichHeld::Stamp(ts) => (None, Some(self.state.index.documents.stamped(&of.namespace, *ts, &of.next))),
        };
        let from = (Bound::Included(&of.next), Bound::Unbounded);
        let process = process.flatten().into_iter().flat_map(move |held| held.range::<LockName, _>(from));
        process.map(|(name, _)| name).chain(stamp.into_iter().flatten())
    }

    /// The same names. Each comes with the selected hold, if any.
    fn meant<'a>(&'a self, of: &'a Unlocking) -> impl Iterator<Item = (&'a LockName, Option<Held<'a>>)> + use<'a> {
        self.names(of).map(move |name| {
            looked_at();
            let key = LockKey { namespace: of.namespace.clone(), name: name.clone() };
            let held = self.state.lock(&key).and_then(Lock::first_held);
            (name, held.filter(|held| of.selects(*held)))
        })
    }
}

/// Whether one of these unfinished commands freed this document.
fn is_freed(unfinished: &[&Unlocking], name: &LockName, held: Held<'_>) -> bool {
    unfinished.iter().any(|unlocking| unlocking.next <= *name && unlocking.selects(held))
}

/// A hold with its token.
type Held<'a> = (FencingToken, &'a Holder);

impl Lock {
    fn first_held(&self) -> Option<Held<'_>> {
        self.holders.first_key_value().map(|(token, holder)| (*token, &**holder))
    }
}

impl Unlocking {
    /// Whether the command frees this hold, apart from its name.
    fn selects(&self, (token, holder): Held<'_>) -> bool {
        let mark = holder.document().filter(|_| token <= self.newest);
        mark.is_some_and(|mark| match &self.which {
            WhichHeld::Process(process, term) => {
                let in_term = term.is_none_or(|term| mark.term.is_some_and(|of| of <= term));
                *holder.request.metadata.process == *process.as_str() && in_term
            }
            WhichHeld::Stamp(ts) => mark.ts == *ts,
        })
    }

    /// Whether this command selects everything that an earlier one selects, so that the rest of that one is part of
    /// this one.
    fn includes(&self, earlier: &Self) -> bool {
        let which = match (&self.which, &earlier.which) {
            (WhichHeld::Process(process, term), WhichHeld::Process(of, earlier)) => {
                process == of && term.is_none_or(|term| earlier.is_some_and(|earlier| earlier <= term))
            }
            (of, earlier) => of == earlier,
        };
        which && self.namespace == earlier.namespace
    }
}
