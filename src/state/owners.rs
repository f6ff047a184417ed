//! Named owners and everything that they hold and wait for, derived from the records.
//!
//! Reentry, hand-over and explanations look up claims here. So does deadlock detection, which also needs to know
//! whether a claim is endless: a claim with a deadline blocks other claims only for a limited time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::indexed::Change;
use super::session::ClaimState;
use super::work::looked_at;
use crate::model::{FencingToken, LockKey, Owner, SessionId};

/// One line of execution: a session and an owner that it named.
pub(crate) type OwnerKey = (SessionId, Owner);

/// A hash map for look-ups only, because the order of its entries is not defined.
pub(crate) type Lookup<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// All named owners that have a claim, or a nested run that has one.
pub(crate) type Owners = Lookup<OwnerKey, Owned>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Owned {
    /// The owner's waits, by queue and sequence number.
    pub(crate) waits: BTreeSet<(LockKey, u64)>,
    /// The owner's holds, by lock and token.
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
    /// The owner's oldest hold of this lock. Without a hold, its first wait for the lock.
    pub(crate) fn claim_at(&self, key: &LockKey) -> Option<ClaimState> {
        let first = (key.clone(), FencingToken::new(0, 0));
        let mut holds = self.holds.range(first..).take_while(|(at, _)| at == key).inspect(|_| looked_at());
        let hold = holds.next().map(|(_, token)| ClaimState::Holding(*token));
        hold.or_else(|| self.waits_at(key).next().map(ClaimState::Waiting))
    }

    /// The owner's sequence numbers in the queue of this lock.
    pub(crate) fn waits_at(&self, key: &LockKey) -> impl Iterator<Item = u64> {
        let all = (key.clone(), 0)..=(key.clone(), u64::MAX);
        self.waits.range(all).map(|(_, place)| *place)
    }

    /// Whether the owner has only one claim, and no other owner waits for its end.
    pub(crate) fn is_single(&self) -> bool {
        self.waits.len() + self.holds.len() == 1 && self.children.is_empty() && self.parents.is_empty()
    }

    /// The nested runs that must end before the owner can finish.
    pub(crate) fn endless_children(&self) -> impl Iterator<Item = &OwnerKey> {
        self.children.iter().filter(|(_, nested)| 0 < nested.endless).map(|(child, _)| child)
    }

    /// The owners that cannot finish before this one ends.
    pub(crate) fn endless_parents(&self) -> impl Iterator<Item = &OwnerKey> {
        self.parents.iter().filter(|(_, nested)| 0 < nested.endless).map(|(parent, _)| parent)
    }
}

impl Nested {
    pub(super) fn change(claims: &mut BTreeMap<OwnerKey, Self>, of: OwnerKey, endless: bool, change: Change) {
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
