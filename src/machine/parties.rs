//! Named owners and what they hold, wait for and are waited for by: the nodes of deadlock detection. Derived.
//!
//! Unnamed claims can always go on, and are left out. So can waits of a bounded time and holds by a lease.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::lock::Lock;
use super::state::{Holder, Waiter};
use crate::model::{FencingToken, LockKey, Owner, Parent, Reentry, SessionId};

/// One line of execution: a session and an owner that it named.
pub(super) type Party = (SessionId, Owner);

/// What one line of execution has to do with others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ties {
    /// Its waits that only a grant or a cancel ends, by queue.
    pub(super) waits: BTreeSet<(LockKey, u64)>,
    /// How many of them lack nothing where they stand: they are a set's, which lacks another lock.
    pub(super) ready: usize,
    /// Its holds that only a release ends.
    pub(super) holds: BTreeSet<(LockKey, FencingToken)>,
    /// Nested runs that have to finish first, with how many holds and waits name it.
    pub(super) children: BTreeMap<Party, usize>,
    /// Who waits for it to finish.
    pub(super) parents: BTreeMap<Party, usize>,
}

impl Ties {
    /// Whether it may not be done when what a wait of it lacks is there: it lacks something elsewhere too, or waits for a
    /// nested run.
    fn is_entangled(&self) -> bool {
        1 + self.ready < self.waits.len() || !self.waits.is_empty() && !self.children.is_empty()
    }
}

impl Waiter {
    /// Whether a party is behind it, and only a grant or a cancel ends it.
    pub(super) fn is_endless(&self) -> bool {
        let named = self.owner.is_some() && self.claim.session().is_some();
        named && self.deadline.is_none() && self.choices().reentry != Reentry::Wait
    }
}

/// The party behind a wait that may be without an end.
pub(super) fn waiting_party(waiter: &Waiter) -> Option<Party> {
    waiter.claim.session().zip(waiter.owner.clone()).filter(|_| waiter.is_endless())
}

/// The party behind a hold that may be without an end.
pub(super) fn holding_party(holder: &Holder) -> Option<Party> {
    holder.claim.session().zip(holder.owner.clone()).filter(|_| holder.lease.is_none())
}

fn named(session: Option<SessionId>, owner: Option<&Owner>) -> Option<Party> {
    session.zip(owner.cloned())
}

impl Machine {
    pub(super) fn tie_wait(&mut self, key: &LockKey, sequence: u64, waiter: &Waiter, there: bool) {
        let child = named(waiter.claim.session(), waiter.owner.as_ref());
        if let Some(party) = waiting_party(waiter) {
            self.tie(party, |ties| put(&mut ties.waits, (key.clone(), sequence), there));
        }
        self.tie_parent(child, waiter.choices().parent.as_ref(), there);
    }

    pub(super) fn tie_hold(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, there: bool) {
        let child = named(holder.claim.session(), holder.owner.as_ref());
        if let Some(party) = holding_party(holder) {
            self.tie(party, |ties| put(&mut ties.holds, (key.clone(), token), there));
        }
        self.tie_parent(child, holder.extras.as_ref().and_then(|extras| extras.parent.as_ref()), there);
    }

    /// One of its waits lacks nothing where it stands, or does again.
    pub(super) fn tie_ready(&mut self, party: Party, is: bool) {
        self.tie(party, |ties| ties.ready = if is { ties.ready + 1 } else { ties.ready.saturating_sub(1) });
    }

    fn tie_parent(&mut self, child: Option<Party>, parent: Option<&Parent>, there: bool) {
        let (Some(child), Some(parent)) = (child, parent) else { return };
        let parent = (parent.session, parent.owner.clone());
        // Nobody waits for itself to finish.
        if child == parent {
            return;
        }
        self.tie(parent.clone(), |ties| count(&mut ties.children, child.clone(), there));
        self.tie(child, |ties| count(&mut ties.parents, parent, there));
    }

    fn tie(&mut self, party: Party, change: impl FnOnce(&mut Ties)) {
        let ties = self.parties.entry(party.clone()).or_default();
        let was = ties.is_entangled();
        change(ties);
        let is = ties.is_entangled();
        if *ties == Ties::default() {
            self.parties.remove(&party);
        }
        match (was, is) {
            (false, true) => drop(self.entangled.insert(party)),
            (true, false) => drop(self.entangled.remove(&party)),
            (true, true) | (false, false) => {}
        }
    }

    /// The index as the locks say that it should be.
    pub(super) fn derived_parties(&self) -> (BTreeMap<Party, Ties>, BTreeSet<Party>) {
        let mut machine = Machine::new();
        for (key, lock) in &self.locks {
            machine.tie_all(key, lock);
        }
        self.tie_all_ready(&mut machine);
        (machine.parties, machine.entangled)
    }

    fn tie_all(&mut self, key: &LockKey, lock: &Lock) {
        for (token, holder) in &lock.holders {
            self.tie_hold(key, *token, holder, true);
        }
        for (sequence, waiter) in lock.queue.iter() {
            self.tie_wait(key, *sequence, waiter, true);
        }
    }
}

pub(super) fn put<T: Ord>(set: &mut BTreeSet<T>, item: T, there: bool) {
    if there {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

fn count(counts: &mut BTreeMap<Party, usize>, party: Party, there: bool) {
    let known = counts.entry(party.clone()).or_default();
    *known = if there { *known + 1 } else { known.saturating_sub(1) };
    if *known == 0 {
        counts.remove(&party);
    }
}
