//! Lists whose length is checked while they are decoded, so that hostile bytes cannot take much memory.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Deserialize, Error, SeqAccess, Visitor};

struct AtMost<const MOST: usize, T>(PhantomData<T>);

fn too_many<E: Error>(most: usize) -> E {
    E::custom(format!("a list of more than {most} elements"))
}

/// For `deserialize_with`: returns an error for a list of more than `MOST` elements.
pub(super) fn list<'de, const MOST: usize, D: Deserializer<'de>, T: Deserialize<'de>>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    reader.deserialize_seq(AtMost::<MOST, Vec<T>>(PhantomData))
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
