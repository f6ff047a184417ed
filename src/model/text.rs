//! The bounds of texts, and their decoding: one allocation for a text, none for an empty or shared one.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::Visitor;

use super::Invalid;

/// Builds a value from a borrowed text, without an owned copy in between. Reads the same bytes as the derived
/// implementation.
pub(super) fn read<'de, D: Deserializer<'de>, T>(reader: D, make: impl FnOnce(&str) -> T) -> Result<T, D::Error> {
    struct Text<F, T>(F, PhantomData<T>);

    impl<F: FnOnce(&str) -> T, T> Visitor<'_> for Text<F, T> {
        type Value = T;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a text")
        }

        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok((self.0)(text))
        }
    }

    reader.deserialize_str(Text(make, PhantomData))
}

/// For `deserialize_with`: decodes a text with one allocation. The implementation of serde first makes a string and
/// then copies it.
pub(super) fn shared<'de, D: Deserializer<'de>>(reader: D) -> Result<Arc<str>, D::Error> {
    read(reader, |text| if text.is_empty() { Arc::default() } else { text.into() })
}

/// Refuses a text that is empty, longer than `bytes_max`, or has a control character.
pub(super) fn bounded(field: &str, text: &str, bytes_max: usize) -> Result<Arc<str>, Invalid> {
    if text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
        let bound = format!("1 to {bytes_max} bytes, no control characters");
        return Err(Invalid::new(field, bound, format!("{} bytes: {text:?}", text.len())));
    }
    Ok(text.into())
}

/// Implements access to the text of these types, as which they are shown.
macro_rules! shown {
    ($($name:ident),*) => { $(
        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    )* };
}
pub(super) use shown;
