//! Rights, and the rules that give them.

use std::fmt;

use serde::Deserialize;

use crate::model::Namespace;

/// A right on names. Each contains those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// See locks, their holders and waiters.
    Read,
    /// Acquire locks, and act on own ones.
    Lock,
    /// Act on the locks and sessions of other principals.
    Admin,
}

/// A right on the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterRight {
    /// Read the metrics of a node.
    Metrics,
    /// Download a backup, which contains the handles of all sessions.
    Backup,
    /// Change members, leader, settings and feature level.
    Operate,
}

/// The names that a caller acts on, in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On<'a> {
    /// Exactly this name.
    Name(&'a str),
    /// All names with this prefix.
    Prefix(&'a str),
    /// All names, also those that do not exist yet.
    All,
    /// Any name: one suffices.
    Any,
}

/// A right on the names with a prefix, in one namespace or in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the role that has the rule.
    pub role: String,
    /// Namespace of the names; `None` for all namespaces.
    pub namespace: Option<Namespace>,
    /// Start of the names; empty for all names.
    pub prefix: String,
    /// The right on these names.
    pub right: Right,
}

impl Rule {
    /// Whether the rule gives this right on names in a namespace.
    pub(super) fn gives(&self, right: Right, namespace: &Namespace, on: On<'_>) -> bool {
        let here = self.namespace.as_ref().is_none_or(|own| own == namespace);
        let named = match on {
            On::Name(start) | On::Prefix(start) => start.starts_with(&self.prefix),
            On::All => self.prefix.is_empty(),
            On::Any => true,
        };
        right <= self.right && here && named
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, namespace, prefix, right } = self;
        let on = if prefix.is_empty() { On::All } else { On::Prefix(prefix) };
        write!(f, "role \"{role}\" may {right} {on}")?;
        match namespace {
            Some(namespace) => write!(f, " in namespace \"{namespace}\""),
            None => f.write_str(" in every namespace"),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Read => "read",
            Right::Lock => "lock",
            Right::Admin => "administer",
        })
    }
}

impl fmt::Display for ClusterRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClusterRight::Metrics => "read the metrics",
            ClusterRight::Backup => "make a backup",
            ClusterRight::Operate => "operate the cluster",
        })
    }
}

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            On::Name(name) => write!(f, "{name:?}"),
            On::All | On::Prefix("") => f.write_str("all names"),
            On::Prefix(prefix) => write!(f, "all names with {prefix:?}"),
            On::Any => f.write_str("any name"),
        }
    }
}
