//! Named owners and everything that they hold and wait for. Derived.
//!
//! Reentry, hand-over and explanations look up claims here. Deadlock detection does as well, and asks of each claim
//! whether it is endless. A claim with a deadline can block others only for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Change, ClaimState, Holder, Indexes, Lock, Purpose, Request, Waiter, looked_at};
use crate::model::{FencingToken, LockKey, Owner, Parent, Reentry, SessionId};

/// One line of execution: a session and an owner that it named.
pub(crate) type OwnerKey = (SessionId, Owner);

/// A hash map for look-ups only. Its order must not matter.
pub(crate) type Lookup<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// All named owners that have a claim, or a nested run that has one.
pub(crate) type Owners = Lookup<OwnerKey, Owned>;

/// The claims of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Owned {
    /// Its waits, by queue and sequence number.
    pub(crate) waits: BTreeSet<(LockKey, u64)>,
    /// Its holds, by lock and token.
    pub(crate) holds: BTreeSet<(LockKey, FencingToken)>,
    /// Nested runs that it waits for.
    pub(crate) children: BTreeMap<OwnerKey, Nested>,
    /// The owners of which it is a nested run.
    pub(crate) parents: BTreeMap<OwnerKey, Nested>,
}

/// How many claims of a nested run name its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Nested {
    claims: usize,
    /// The number of claims without a deadline.
    pub(crate) endless: usize,
}

impl Owned {
    /// The owner's oldest hold of this lock, or else its first wait.
    pub(crate) fn claim_at(&self, key: &LockKey) -> Option<ClaimState> {
        let first = (key.clone(), FencingToken::new(0, 0));
        let mut holds = self.holds.range(first..).take_while(|(at, _)| at == key).inspect(|_| looked_at());
        let hold = holds.next().map(|(_, token)| ClaimState::Holding(*token));
        hold.or_else(|| self.waits_at(key).next().map(ClaimState::Waiting))
    }

    /// Its sequence numbers in the queue of this lock.
    pub(crate) fn waits_at(&self, key: &LockKey) -> impl Iterator<Item = u64> {
        let all = (key.clone(), 0)..=(key.clone(), u64::MAX);
        self.waits.range(all).map(|(_, place)| *place)
    }

    /// Whether it has only one claim, and no other owner waits for its end.
    pub(crate) fn is_single(&self) -> bool {
        self.waits.len() + self.holds.len() == 1 && self.children.is_empty() && self.parents.is_empty()
    }

    /// The nested runs that must end before it can finish.
    pub(crate) fn endless_children(&self) -> impl Iterator<Item = &OwnerKey> {
        self.children.iter().filter(|(_, nested)| 0 < nested.endless).map(|(child, _)| child)
    }

    /// The owners that cannot finish before its end.
    pub(crate) fn endless_parents(&self) -> impl Iterator<Item = &OwnerKey> {
        self.parents.iter().filter(|(_, nested)| 0 < nested.endless).map(|(parent, _)| parent)
    }
}

impl Nested {
    fn change(claims: &mut BTreeMap<OwnerKey, Self>, of: OwnerKey, endless: bool, change: Change) {
        let known = claims.entry(of.clone()).or_default();
        let step = |count: usize, by: usize| match change {
            Change::Came => count + by,
            Change::Went => count.saturating_sub(by),
        };
        *known = Self { claims: step(known.claims, 1), endless: step(known.endless, usize::from(endless)) };
        if known.claims == 0 {
            claims.remove(&of);
        }
    }
}

impl Request {
    /// Its session and owner, if it names both.
    pub(crate) fn owner_key(&self) -> Option<OwnerKey> {
        self.claim.session().zip(self.owner.clone())
    }
}

impl Waiter {
    /// Whether its hold will have a deadline.
    pub(crate) fn is_for_a_while(&self) -> bool {
        self.lease.is_some() || self.request.choices().at_most_ms.is_some()
    }

    /// Whether its wait ends without a grant or a cancel: it has a deadline, or its owner waits for its own hold.
    fn ends_by_itself(&self) -> bool {
        self.deadline.is_some() || self.request.choices().reentry == Reentry::Wait
    }
}

impl Holder {
    /// Its owner, if only a release ends the hold.
    pub(crate) fn endless_owner(&self) -> Option<OwnerKey> {
        self.request.owner_key().filter(|_| !self.ends_by_itself())
    }
}

impl Lock {
    /// The owner of a wait in this queue that only a grant or a cancel ends. An upgrade ends with the hold that it
    /// upgrades.
    pub(crate) fn endless_wait(&self, waiter: &Waiter) -> Option<OwnerKey> {
        let lasts = match waiter.purpose {
            Purpose::Upgrade(token) => self.holders.get(&token).is_some_and(|holder| !holder.ends_by_itself()),
            Purpose::Hold | Purpose::Set => true,
        };
        waiter.request.owner_key().filter(|_| lasts && !waiter.ends_by_itself())
    }
}

impl Indexes {
    pub(super) fn change_wait(&mut self, key: &LockKey, place: u64, waiter: &Waiter, change: Change) {
        let Some(owner) = waiter.request.owner_key() else { return };
        self.change_owned(owner.clone(), |owned| change.put(&mut owned.waits, (key.clone(), place)));
        // Once it is granted, such a hold may end although the run continues.
        let endless = !waiter.ends_by_itself() && !waiter.is_for_a_while();
        self.change_parent(owner, waiter.request.choices().parent.as_ref(), endless, change);
    }

    pub(super) fn change_hold(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, change: Change) {
        let Some(owner) = holder.request.owner_key() else { return };
        self.change_owned(owner.clone(), |owned| change.put(&mut owned.holds, (key.clone(), token)));
        self.change_parent(owner, holder.request.choices().parent.as_ref(), !holder.ends_by_itself(), change);
    }

    fn change_parent(&mut self, child: OwnerKey, parent: Option<&Parent>, endless: bool, change: Change) {
        // No owner waits for its own end.
        let parent = parent.map(|parent| (parent.session, parent.owner.clone())).filter(|parent| *parent != child);
        let Some(parent) = parent else { return };
        self.change_owned(parent.clone(), |owned| Nested::change(&mut owned.children, child.clone(), endless, change));
        self.change_owned(child, |owned| Nested::change(&mut owned.parents, parent, endless, change));
    }

    fn change_owned(&mut self, owner: OwnerKey, change: impl FnOnce(&mut Owned)) {
        let owned = self.owners.entry(owner.clone()).or_default();
        change(owned);
        if *owned == Owned::default() {
            self.owners.remove(&owner);
        }
    }
}
