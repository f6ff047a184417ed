//! Names: namespaces, locks, owners and principals. They are parsed once, when a request enters the node.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize};

use super::{Invalid, text};
use crate::limits;

/// A part of every lock's identity, fixed when a client connects: 1–64 bytes of `a-z 0-9 - _ .`.
///
/// All copies of the default namespace share their text, because nearly every command contains it and every step of an
/// acquire compares it.
#[derive(Clone, Eq, Serialize)]
pub struct Namespace(Arc<str>);

/// The text of the default namespace.
static DEFAULT_TEXT: LazyLock<Arc<str>> = LazyLock::new(|| Namespace::DEFAULT.into());

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::read(deserializer, Self::shared)
    }
}

impl Hash for Namespace {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.0.hash(to);
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Namespace {
    /// The namespace of clients that name none.
    pub const DEFAULT: &'static str = "default";

    /// Returns an error for a text that is empty, longer than 64 bytes, or has a character not in `a-z 0-9 - _ .`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if text.is_empty() || text.len() > limits::NAMESPACE_BYTES_MAX || !text.bytes().all(legal) {
            let bound = format!("1 to {} bytes of a-z 0-9 - _ .", limits::NAMESPACE_BYTES_MAX);
            return Err(Invalid::new("namespace", bound, format!("{text:?}")));
        }
        Ok(Self::shared(text))
    }

    fn shared(text: &str) -> Self {
        if text == Self::DEFAULT { Self::default() } else { Self(text.into()) }
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Arc::clone(&DEFAULT_TEXT))
    }
}

/// The name of a lock: UTF-8, 1–255 bytes, no control characters, compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockName(#[serde(deserialize_with = "text::shared")] Arc<str>);

/// Lets a map of names be searched by text, because a name hashes and compares as its text.
impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl LockName {
    /// Returns an error for a text that is empty, longer than 255 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > limits::LOCK_NAME_BYTES_MAX {
            let bound = format!("1 to {} bytes", limits::LOCK_NAME_BYTES_MAX);
            return Err(Invalid::new("lock", bound, format!("{} bytes: {text:?}", text.len())));
        }
        if text.chars().any(char::is_control) {
            return Err(Invalid::new("lock", "no control characters", format!("{text:?}")));
        }
        Ok(Self(text.into()))
    }

    /// The smallest name: no name sorts before it, because only control characters sort before a space.
    #[must_use]
    pub fn least() -> Self {
        Self(" ".into())
    }
}

/// The full name of a lock: a name within its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockKey {
    /// The namespace of the client.
    pub namespace: Namespace,
    /// The lock's name in that namespace.
    pub name: LockName,
}

/// A line of execution (a task, a thread, a job) that acquires locks. Without one, every acquire is its own owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Owner {
    /// Returns an error for a text that is empty, longer than 128 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        text::bounded("owner", text, limits::OWNER_BYTES_MAX).map(Self)
    }
}

/// A caller's identity, as the cluster checked it: `anonymous` if callers need not prove one. The default value and all
/// deserialized copies of `anonymous` share their text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Principal(Arc<str>);

/// The text for a caller that proved no identity.
static ANONYMOUS_TEXT: LazyLock<Arc<str>> = LazyLock::new(|| Principal::ANONYMOUS.into());

/// The text for the application that embeds a node.
static LOCAL_TEXT: LazyLock<Arc<str>> = LazyLock::new(|| Principal::LOCAL.into());

impl<'de> Deserialize<'de> for Principal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::read(deserializer, |text| if text == Self::ANONYMOUS { Self::default() } else { Self(text.into()) })
    }
}

impl Principal {
    const ANONYMOUS: &str = "anonymous";
    const LOCAL: &str = "local";

    /// Returns the principal of an application that embeds a node with principals. It may do everything.
    #[must_use]
    pub fn local() -> Self {
        Self(Arc::clone(&LOCAL_TEXT))
    }

    /// Whether the caller proved no identity.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        &*self.0 == Self::ANONYMOUS
    }

    /// Whether the caller is the application that embeds a node.
    #[must_use]
    pub fn is_local(&self) -> bool {
        &*self.0 == Self::LOCAL
    }

    /// Returns an error for a text that is empty, longer than 128 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        text::bounded("principal", text, limits::PRINCIPAL_BYTES_MAX).map(Self)
    }
}

impl Default for Principal {
    fn default() -> Self {
        Self(Arc::clone(&ANONYMOUS_TEXT))
    }
}

text::shown!(Namespace, LockName, Owner, Principal);

#[cfg(test)]
mod tests {
    use super::*;

    /// Namespaces compare, hash and sort by their text, whether or not they share it. The default namespace always
    /// shares its text.
    #[test]
    fn namespaces_are_their_text() {
        let read = |text: &str| serde_json::from_str::<Namespace>(&format!("{text:?}")).expect("a namespace");
        assert!(Arc::ptr_eq(&read("default").0, &Namespace::default().0));
        assert!(Arc::ptr_eq(&Namespace::parse("default").expect("legal").0, &Namespace::default().0));
        let (one, same, later) = (read("team-a"), read("team-a"), read("team-b"));
        assert!(!Arc::ptr_eq(&one.0, &same.0));
        assert!(one == same && one < later && one > Namespace::default() && Namespace::default() < later);
        assert_eq!(std::collections::HashSet::from([one, same, later]).len(), 2);
    }

    /// Names at their bounds are accepted. One byte more or a control character is refused, in a namespace also a
    /// letter other than `a-z`. The refusal names the field.
    #[test]
    fn names_are_refused_beyond_their_bounds() {
        assert!(LockName::parse(&"x".repeat(255)).is_ok());
        assert!(LockName::parse("Gößweinstein / \u{202e}right-to-left").is_ok());
        for bad in ["", "a\nb", "nul\0", &"x".repeat(256)] {
            assert_eq!(LockName::parse(bad).expect_err("refused").field, "lock");
        }
        assert!(Namespace::parse("team-a.batch_1").is_ok());
        for bad in ["", "Team", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(Namespace::parse(bad).expect_err("refused").field, "namespace");
        }
    }
}
