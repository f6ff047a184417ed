//! A map in the order of its keys, for places where one entry is the rule.

use std::collections::{BTreeMap, btree_map};
use std::iter::Chain;
use std::{fmt, option};

/// As a [`BTreeMap`], but an only entry needs no memory beside it: a tree has room for eleven from its first on.
///
/// Once there were two it stays a tree until it is empty, so that a second entry that comes and goes costs no more there.
#[derive(Clone)]
pub(super) struct Few<K, V>(Entries<K, V>);

#[derive(Clone)]
enum Entries<K, V> {
    None,
    One(K, V),
    /// Never empty.
    Many(BTreeMap<K, V>),
}

type Iter<'a, K, V> = Chain<option::IntoIter<(&'a K, &'a V)>, btree_map::Iter<'a, K, V>>;
type IntoIter<K, V> = Chain<option::IntoIter<(K, V)>, btree_map::IntoIter<K, V>>;

impl<K: Ord, V> Few<K, V> {
    pub(super) const fn new() -> Self {
        Self(Entries::None)
    }

    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Entries::None => 0,
            Entries::One(..) => 1,
            Entries::Many(tree) => tree.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.0, Entries::None)
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match &self.0 {
            Entries::None => None,
            Entries::One(only, value) => (only == key).then_some(value),
            Entries::Many(tree) => tree.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.0 {
            Entries::None => None,
            Entries::One(only, value) => (only == key).then_some(value),
            Entries::Many(tree) => tree.get_mut(key),
        }
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Answers what stood under the key before.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.0 {
            Entries::Many(tree) => return tree.insert(key, value),
            Entries::One(only, old) if *only == key => return Some(std::mem::replace(old, value)),
            Entries::None | Entries::One(..) => {}
        }
        self.0 = match self.pop_first() {
            None => Entries::One(key, value),
            Some(only) => Entries::Many(BTreeMap::from([only, (key, value)])),
        };
        None
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match &mut self.0 {
            Entries::Many(tree) => {
                let removed = tree.remove(key);
                self.tidy();
                removed
            }
            Entries::One(only, _) if only == key => self.pop_first().map(|(_, value)| value),
            Entries::None | Entries::One(..) => None,
        }
    }

    /// Takes out the entry with the lowest key.
    pub(super) fn pop_first(&mut self) -> Option<(K, V)> {
        if let Entries::Many(tree) = &mut self.0 {
            let first = tree.pop_first();
            self.tidy();
            return first;
        }
        match std::mem::take(self).0 {
            Entries::One(only, value) => Some((only, value)),
            Entries::None | Entries::Many(_) => None,
        }
    }

    /// An empty tree is none.
    fn tidy(&mut self) {
        if matches!(&self.0, Entries::Many(tree) if tree.is_empty()) {
            self.0 = Entries::None;
        }
    }

    pub(super) fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    pub(super) fn last_key_value(&self) -> Option<(&K, &V)> {
        match &self.0 {
            Entries::None => None,
            Entries::One(only, value) => Some((only, value)),
            Entries::Many(tree) => tree.last_key_value(),
        }
    }

    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        match &self.0 {
            Entries::None => None.into_iter().chain(btree_map::Iter::default()),
            Entries::One(only, value) => Some((only, value)).into_iter().chain(btree_map::Iter::default()),
            Entries::Many(tree) => None.into_iter().chain(tree),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let (one, tree) = match &mut self.0 {
            Entries::None => (None, None),
            Entries::One(_, value) => (Some(value), None),
            Entries::Many(tree) => (None, Some(tree)),
        };
        one.into_iter().chain(tree.into_iter().flat_map(BTreeMap::values_mut))
    }
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Entries::None)
    }
}

impl<K: Ord, V: PartialEq> PartialEq for Few<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl<K: Ord, V: Eq> Eq for Few<K, V> {}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Few<K, V> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_map().entries(self).finish()
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a Few<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Entries::None => None.into_iter().chain(BTreeMap::new()),
            Entries::One(only, value) => Some((only, value)).into_iter().chain(BTreeMap::new()),
            Entries::Many(tree) => None.into_iter().chain(tree),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::Few;

    proptest! {
        /// What a tree would do, whatever comes and goes.
        #[test]
        fn it_is_a_map(steps in vec((0_u8..4, 0_u8..4, any::<u8>()), 0..40)) {
            let (mut few, mut tree) = (Few::new(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0 => assert_eq!(few.remove(&key), tree.remove(&key)),
                    1 => assert_eq!(few.pop_first(), tree.pop_first()),
                    _ => assert_eq!(few.insert(key, value), tree.insert(key, value)),
                }
                if let Some(value) = few.get_mut(&key) {
                    *value ^= 1;
                }
                few.values_mut().for_each(|value| *value ^= 2);
                tree.entry(key).and_modify(|value| *value ^= 1);
                tree.values_mut().for_each(|value| *value ^= 2);
                assert_eq!(few.get(&key), tree.get(&key));
                assert_eq!(few.contains_key(&key), tree.contains_key(&key));
                assert_eq!((few.len(), few.is_empty()), (tree.len(), tree.is_empty()));
                assert_eq!(few.first_key_value(), tree.first_key_value());
                assert_eq!(few.last_key_value(), tree.last_key_value());
                assert!(few.iter().eq(&tree) && few.keys().eq(tree.keys()) && few.values().eq(tree.values()));
                assert!(few.clone().into_iter().eq(tree.clone()));
                let mut anew = Few::new();
                few.iter().for_each(|(key, value)| assert_eq!(anew.insert(*key, *value), None));
                assert_eq!(few, anew, "by its entries, not by what it went through");
                assert_eq!(format!("{few:?}"), format!("{tree:?}"));
            }
        }
    }
}
