//! Lists as they are read from bytes: no longer than they may be, so that what is read has a bound in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Deserialize, Error, MapAccess, SeqAccess, Visitor};

struct AtMost<const MOST: usize, T>(PhantomData<T>);

fn too_many<E: Error>(most: usize) -> E {
    E::custom(format!("a list of more than {most} elements"))
}

/// For `deserialize_with`: a list that is refused where it has more than `MOST` elements.
pub(super) fn list<'de, const MOST: usize, D: Deserializer<'de>, T: Deserialize<'de>>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    reader.deserialize_seq(AtMost::<MOST, Vec<T>>(PhantomData))
}

/// For `deserialize_with`: the same of a map.
pub(super) fn map<'de, const MOST: usize, D, K, V>(reader: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    reader.deserialize_map(AtMost::<MOST, BTreeMap<K, V>>(PhantomData))
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<MOST, Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            if read.len() == MOST {
                return Err(too_many(MOST));
            }
            read.push(element);
        }
        Ok(read)
    }
}

impl<'de, const MOST: usize, K, V> Visitor<'de> for AtMost<MOST, BTreeMap<K, V>>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    type Value = BTreeMap<K, V>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a map of at most {MOST} elements")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut elements: A) -> Result<BTreeMap<K, V>, A::Error> {
        let mut read = BTreeMap::new();
        while let Some((key, value)) = elements.next_entry()? {
            if read.len() == MOST {
                return Err(too_many(MOST));
            }
            read.insert(key, value);
        }
        Ok(read)
    }
}
