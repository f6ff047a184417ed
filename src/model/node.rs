//! The addresses of a node, and what it announces about itself to its cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Invalid;
use crate::limits;

/// The addresses of a member of the cluster, as `host:port`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Address for clients.
    pub client: String,
    /// Address for the other nodes.
    pub peer: String,
}

impl Member {
    /// Checks the addresses, and refuses those to which no client or node could connect.
    ///
    /// # Errors
    /// The error names the field, `client` or `peer`.
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

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.peer)
    }
}

/// What a voter announces about itself. The replicated state contains it, so that every node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The id of the node.
    pub node: u64,
    /// The random id of the disk with the node's log, made together with the data directory. It never changes for a
    /// node: a new disk is a new node.
    pub disk: u128,
    /// Highest feature level that its build supports.
    pub features: u32,
    /// Version of its build, for display only. At most [`limits::VERSION_BYTES_MAX`].
    pub version: String,
    /// The address of its HTTP port as `host:port`, if it has one. At most [`limits::ADDRESS_BYTES_MAX`].
    pub http: Option<String>,
    /// Digest of the rules by which the node judges its callers: the start of the SHA-256 of their file. `None` if the
    /// node does not know its callers.
    pub rules: Option<u64>,
}

impl Announcement {
    /// Checks that the texts of the announcement are within their bounds.
    ///
    /// # Errors
    /// Names the field that is too long.
    pub fn checked(self) -> Result<Self, Invalid> {
        let http = self.http.as_deref().unwrap_or_default();
        let texts = [("version", &*self.version, limits::VERSION_BYTES_MAX), ("http", http, limits::ADDRESS_BYTES_MAX)];
        for (field, text, most) in texts {
            if most < text.len() {
                return Err(Invalid::new(field, format!("at most {most} bytes"), text));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a text that is too long names its field. A text of the greatest length is accepted.
    #[test]
    fn long_texts_are_refused() {
        let announcement = |version: usize, http: usize| Announcement {
            node: 1,
            disk: 2,
            features: 1,
            version: "v".repeat(version),
            http: Some("h".repeat(http)),
            rules: None,
        };
        let (version, http) = (limits::VERSION_BYTES_MAX, limits::ADDRESS_BYTES_MAX);
        assert!(announcement(version, http).checked().is_ok());
        assert_eq!(announcement(version + 1, http).checked().expect_err("long").field, "version");
        assert_eq!(announcement(version, http + 1).checked().expect_err("long").field, "http");
    }
}
