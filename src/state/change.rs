//! The two ways in which an index changes.

use std::collections::BTreeSet;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// The item was added.
    Came,
    /// The item was removed.
    Went,
}

impl Change {
    pub(super) fn put<T: Ord>(self, set: &mut BTreeSet<T>, item: T) {
        match self {
            Self::Came => drop(set.insert(item)),
            Self::Went => drop(set.remove(&item)),
        }
    }

    pub(super) fn count(self, number: &mut u64) {
        match self {
            Self::Came => *number += 1,
            Self::Went => *number -= 1,
        }
    }
}
