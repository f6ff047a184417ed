//! A sorted map that stores a single entry inline.

use std::collections::{BTreeMap, btree_map};
use std::iter::Chain;
use std::marker::PhantomData;
use std::{fmt, option};

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A sorted map like [`BTreeMap`] that stores a single entry inline. A tree allocates space for eleven entries with its
/// first one.
///
/// A map that had two entries remains a tree until it is empty, so that a second entry that comes and goes repeatedly
/// does not allocate each time.
#[derive(Clone)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone)]
enum Entries<K, V> {
    None,
    One(K, V),
    /// A tree with at least one entry.
    Many(BTreeMap<K, V>),
}

type Iter<'a, K, V> = Chain<option::IntoIter<(&'a K, &'a V)>, btree_map::Iter<'a, K, V>>;
type IntoIter<K, V> = Chain<option::IntoIter<(K, V)>, btree_map::IntoIter<K, V>>;

impl<K: Ord, V> SmallMap<K, V> {
    /// Creates an empty map. Allocates no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self(Entries::None)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::None => 0,
            Entries::One(..) => 1,
            Entries::Many(tree) => tree.len(),
        }
    }

    /// Whether the map has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Entries::None)
    }

    /// The value of this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.0 {
            Entries::None => None,
            Entries::One(only, value) => (only == key).then_some(value),
            Entries::Many(tree) => tree.get(key),
        }
    }

    /// The value of this key, mutably.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.0 {
            Entries::None => None,
            Entries::One(only, value) => (only == key).then_some(value),
            Entries::Many(tree) => tree.get_mut(key),
        }
    }

    /// Whether the map has this key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts an entry and returns the value that the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
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

    /// Removes the entry of this key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
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

    /// Removes the entry with the lowest key and returns it.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
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

    /// Turns an empty tree into an empty map.
    fn tidy(&mut self) {
        if matches!(&self.0, Entries::Many(tree) if tree.is_empty()) {
            self.0 = Entries::None;
        }
    }

    /// The entry with the lowest key.
    #[must_use]
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The entry with the highest key.
    #[must_use]
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        match &self.0 {
            Entries::None => None,
            Entries::One(only, value) => Some((only, value)),
            Entries::Many(tree) => tree.last_key_value(),
        }
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        match &self.0 {
            Entries::None => None.into_iter().chain(btree_map::Iter::default()),
            Entries::One(only, value) => Some((only, value)).into_iter().chain(btree_map::Iter::default()),
            Entries::Many(tree) => None.into_iter().chain(tree),
        }
    }

    /// The only entry. `None` if there are none or several.
    #[must_use]
    pub fn only(&self) -> Option<(&K, &V)> {
        self.first_key_value().filter(|_| self.len() == 1)
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// All values mutably, in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let (one, tree) = match &mut self.0 {
            Entries::None => (None, None),
            Entries::One(_, value) => (Some(value), None),
            Entries::Many(tree) => (None, Some(tree)),
        };
        one.into_iter().chain(tree.into_iter().flat_map(BTreeMap::values_mut))
    }
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Entries::None)
    }
}

impl<K, V> From<(K, V)> for SmallMap<K, V> {
    fn from((key, value): (K, V)) -> Self {
        Self(Entries::One(key, value))
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

/// Serializes like a [`BTreeMap`]: maps with equal entries give equal bytes.
impl<K: Ord + Serialize, V: Serialize> Serialize for SmallMap<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self)
    }
}

struct AtMost<const MOST: usize, K, V>(PhantomData<(K, V)>);

/// For `deserialize_with`: returns an error for a map of more than `MOST` entries.
pub(super) fn at_most<'de, const MOST: usize, D, K, V>(reader: D) -> Result<SmallMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    reader.deserialize_map(AtMost::<MOST, K, V>(PhantomData))
}

impl<'de, const MOST: usize, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for AtMost<MOST, K, V> {
    type Value = SmallMap<K, V>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a map of at most {MOST} elements")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut read = SmallMap::new();
        while let Some((key, value)) = elements.next_entry()? {
            if read.len() == MOST {
                return Err(A::Error::custom(format!("a list of more than {MOST} elements")));
            }
            read.insert(key, value);
        }
        Ok(read)
    }
}

impl<K: Ord, V: PartialEq> PartialEq for SmallMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl<K: Ord, V: Eq> Eq for SmallMap<K, V> {}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for SmallMap<K, V> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_map().entries(self).finish()
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
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

    use super::SmallMap;

    proptest! {
        /// The map behaves like a tree through any sequence of insertions and removals.
        #[test]
        fn it_is_a_map(steps in vec((0_u8..4, 0_u8..4, any::<u8>()), 0..40)) {
            let (mut small, mut tree) = (SmallMap::new(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0 => assert_eq!(small.remove(&key), tree.remove(&key)),
                    1 => assert_eq!(small.pop_first(), tree.pop_first()),
                    _ => assert_eq!(small.insert(key, value), tree.insert(key, value)),
                }
                if let Some(value) = small.get_mut(&key) {
                    *value ^= 1;
                }
                small.values_mut().for_each(|value| *value ^= 2);
                tree.entry(key).and_modify(|value| *value ^= 1);
                tree.values_mut().for_each(|value| *value ^= 2);
                assert_eq!(small.get(&key), tree.get(&key));
                assert_eq!(small.contains_key(&key), tree.contains_key(&key));
                assert_eq!((small.len(), small.is_empty()), (tree.len(), tree.is_empty()));
                assert_eq!(small.first_key_value(), tree.first_key_value());
                assert_eq!(small.last_key_value(), tree.last_key_value());
                assert!(small.iter().eq(&tree) && small.keys().eq(tree.keys()) && small.values().eq(tree.values()));
                assert!(small.clone().into_iter().eq(tree.clone()));
                assert_eq!(small.only().is_some(), tree.len() == 1);
                assert!(tree.clone().into_iter().collect::<SmallMap<_, _>>().iter().eq(&tree));
                let mut again = SmallMap::new();
                small.iter().for_each(|(key, value)| assert_eq!(again.insert(*key, *value), None));
                assert_eq!(small, again, "by its entries, not by what it went through");
                assert_eq!(format!("{small:?}"), format!("{tree:?}"));
            }
        }
    }
}
