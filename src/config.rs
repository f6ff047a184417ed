//! One node's settings: a TOML file and environment variables become a checked [`Config`], or an error that names
//! the file, the line and the mend.
//!
//! Knows: limits, model. Never: sockets, disks beyond the one file, the rooms that use the settings.

mod check;
mod draft;
mod quota;
mod render;
mod timing;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::limits;
use crate::model::Invalid;

pub use quota::Rates;
pub use render::Joining;
pub use timing::{Profile, Timing};

/// A node's settings, checked: no field contradicts another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cluster's name, the same on every node.
    pub cluster: String,
    /// What the nodes of the cluster know each other by, for a node that joins or was restored; `None` for a founding member,
    /// where it follows from the cluster's name and members. It is not the cluster's id, by which clients know it.
    pub peers_id: Option<u128>,
    /// This node's id; one of the members.
    pub node: u64,
    /// Directory of its data. A relative one is taken from the working directory.
    pub data: PathBuf,
    /// Where it listens.
    pub listen: Listen,
    /// The founding members by id, the same on every node. Of a node that joins: those that it was told of.
    pub members: BTreeMap<u64, Member>,
    /// Raft's timing, the same on every node.
    pub timing: Timing,
    /// What the node tells on standard error: off, error, warn, info, debug or trace.
    pub log_level: String,
    /// How many commands a second each namespace may send.
    pub rates: Rates,
}

/// The addresses on which a node listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// For clients (gRPC).
    pub client: SocketAddr,
    /// For the other nodes.
    pub peer: SocketAddr,
    /// For health, metrics and JSON; `None` opens no such port.
    pub http: Option<SocketAddr>,
}

/// Where a member is reached, as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// By clients.
    pub client: String,
    /// By the other nodes.
    pub peer: String,
}

impl Member {
    /// Refuses addresses that nobody could dial, with the field that is wrong.
    ///
    /// # Errors
    /// Names `client` or `peer`.
    pub fn checked(&self) -> Result<(), Invalid> {
        for (field, address) in [("client", &self.client), ("peer", &self.peer)] {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let port = port.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port != 0);
            if port.is_none() || address.contains('/') || limits::ADDRESS_BYTES_MAX < address.len() {
                return Err(Invalid::new(field, "HOST:PORT", format!("{address:?}")));
            }
        }
        if self.client == self.peer {
            return Err(Invalid::new("peer", "another address than for clients", format!("{:?}", self.peer)));
        }
        Ok(())
    }
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {mend}")]
pub struct ConfigError {
    /// The file, with a line where one is to blame, or the environment variable.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub mend: String,
}

impl ConfigError {
    fn new(place: impl fmt::Display, problem: impl fmt::Display, mend: impl fmt::Display) -> Self {
        Self { place: place.to_string(), problem: problem.to_string(), mend: mend.to_string() }
    }
}

impl Config {
    /// Reads and checks a file, with the environment's `LOCKKEEPER_SECTION__KEY` variables laid over it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(&name, format!("cannot be read: {error}"), "check the path"))?;
        Self::from_toml(
            &name,
            &text,
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
        )
    }

    /// Checks a text that is called `name` in errors, with `variables` laid over it: those of a scalar key
    /// (`LOCKKEEPER_NODE`, `LOCKKEEPER_LISTEN__PEER`) replace what the text says, others are ignored unless they
    /// name a key that does not exist.
    pub fn from_toml(
        name: &str,
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut draft = draft::Draft::parse(name, text)?;
        draft.overlay(variables)?;
        check::check(draft)
    }

    /// This node's own entry among the members.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        self.members.get(&self.node)
    }
}

#[cfg(test)]
mod tests;
