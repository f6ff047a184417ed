//! Names: namespaces, locks, owners and principals, parsed once at the edge.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Invalid;
use crate::limits;

/// A part of every lock's identity, fixed when a client connects: 1–64 bytes of `a-z 0-9 - _ .`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The namespace of clients that name none.
    pub const DEFAULT: &'static str = "default";

    /// Refuses what is empty, longer than 64 bytes, or has another character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if text.is_empty() || text.len() > limits::NAMESPACE_BYTES_MAX || !text.bytes().all(legal) {
            let bound = format!("1 to {} bytes of a-z 0-9 - _ .", limits::NAMESPACE_BYTES_MAX);
            return Err(Invalid::new("namespace", bound, format!("{text:?}")));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// The name of a lock: UTF-8, 1–255 bytes, no control characters, compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockName(Arc<str>);

/// A name is found by its text: it hashes and compares as that.
impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl LockName {
    /// Refuses what is empty, longer than 255 bytes, or has a control character.
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

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LockName {
    /// No name sorts before this one.
    #[must_use]
    pub fn least() -> Self {
        Self(" ".into())
    }
}

/// Which lock: a name within its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockKey {
    /// The namespace of the client that asked.
    pub namespace: Namespace,
    /// The lock's name there.
    pub name: LockName,
}

/// One line of execution (a task, a thread, a job) that asks for locks. Without one, every acquire is its own owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Refuses what is empty, longer than 128 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        bounded_text("owner", text, limits::OWNER_BYTES_MAX).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who the cluster says that the caller is: `anonymous` where nobody is asked to prove it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Refuses what is empty, longer than 128 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        bounded_text("principal", text, limits::PRINCIPAL_BYTES_MAX).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Principal {
    fn default() -> Self {
        Self("anonymous".into())
    }
}

fn bounded_text(field: &str, text: &str, bytes_max: usize) -> Result<Arc<str>, Invalid> {
    if text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
        let bound = format!("1 to {bytes_max} bytes, no control characters");
        return Err(Invalid::new(field, bound, format!("{} bytes: {text:?}", text.len())));
    }
    Ok(text.into())
}

macro_rules! shown_as_text {
    ($($name:ident),*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    )* };
}
shown_as_text!(Namespace, LockName, Owner, Principal);

#[cfg(test)]
mod tests {
    use super::*;

    /// Names at their bounds are taken; one byte more, a control character or a foreign letter is refused by name.
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
