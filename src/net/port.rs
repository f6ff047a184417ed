//! The ports of a node, and the limits of their connections.

use std::time::Duration;

use metrics::Counter;

use crate::limits;

/// A port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Port for clients.
    Client,
    /// Port for the other nodes.
    Peer,
    /// Port for health checks and metrics.
    Http,
}

/// The most connections of the listeners for clients and for HTTP, which an operator may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionsMax {
    /// Connections of the client port.
    pub client: usize,
    /// Connections of the client port from one address.
    pub client_an_address: usize,
    /// Connections of the HTTP port.
    pub http: usize,
    /// Connections of the HTTP port from one address.
    pub http_an_address: usize,
}

impl Default for ConnectionsMax {
    fn default() -> Self {
        Self {
            client: limits::CLIENT_CONNECTIONS_MAX,
            client_an_address: limits::CLIENT_CONNECTIONS_AN_ADDRESS_MAX,
            http: limits::HTTP_CONNECTIONS_MAX,
            http_an_address: limits::HTTP_CONNECTIONS_AN_ADDRESS_MAX,
        }
    }
}

/// The most connections of one port. A connection is unproven until its first request has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    pub(super) open: usize,
    pub(super) open_an_address: usize,
    pub(super) unproven: usize,
    pub(super) unproven_an_address: usize,
}

impl Port {
    /// Returns the name of the port in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
            Self::Http => "http",
        }
    }

    /// Returns the counter of this port with this name.
    pub(super) fn counter(self, name: &'static str, help: &'static str) -> Counter {
        metrics::describe_counter!(name, help);
        metrics::counter!(name, "port" => self.name())
    }

    /// Returns the limits of one listener of a node with this configuration.
    pub(super) fn limits(self, most: ConnectionsMax) -> ConnectionLimits {
        match self {
            Self::Client => ConnectionLimits {
                open: most.client,
                open_an_address: most.client_an_address,
                unproven: limits::CLIENT_UNPROVEN_MAX,
                unproven_an_address: limits::CLIENT_UNPROVEN_AN_ADDRESS_MAX,
            },
            Self::Peer => ConnectionLimits {
                open: limits::PEER_CONNECTIONS_MAX,
                open_an_address: limits::PEER_CONNECTIONS_AN_ADDRESS_MAX,
                unproven: limits::PEER_UNPROVEN_MAX,
                unproven_an_address: limits::PEER_UNPROVEN_AN_ADDRESS_MAX,
            },
            Self::Http => ConnectionLimits {
                open: most.http,
                open_an_address: most.http_an_address,
                unproven: limits::HTTP_UNPROVEN_MAX,
                unproven_an_address: limits::HTTP_UNPROVEN_AN_ADDRESS_MAX,
            },
        }
    }

    /// Returns the most connections that all listeners of this port have together in a process with this limit of
    /// file descriptors. A third of what clients do not get stays free for files.
    pub(super) fn share(self, descriptors: u64) -> u64 {
        let reserved = (descriptors / 2).min(limits::DESCRIPTORS_RESERVED_MAX);
        match self {
            Self::Client => descriptors - reserved,
            Self::Peer | Self::Http => reserved / 3,
        }
    }

    /// Returns the time in which the first request of a new connection must begin.
    pub(super) fn patience(self) -> Duration {
        Duration::from_millis(match self {
            Self::Client => limits::CLIENT_FIRST_REQUEST_MS_MAX,
            Self::Peer => limits::PEER_FIRST_REQUEST_MS_MAX,
            Self::Http => limits::HTTP_FIRST_REQUEST_MS_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With any limit of descriptors, the connections of all ports leave some for a node's files. With the usual
    /// limits of servers, the client port has all connections that it may have.
    #[test]
    fn connections_do_not_get_all_descriptors() {
        let shares = |descriptors| [Port::Client, Port::Peer, Port::Http].map(|port| port.share(descriptors));
        assert_eq!([256, 1_024].map(shares), [[128, 42, 42], [512, 170, 170]]);
        for descriptors in [256, 1_024, 4_096, 1 << 20] {
            let left = descriptors - shares(descriptors).iter().sum::<u64>();
            assert!(descriptors.min(6_144) / 6 <= left, "{left} of {descriptors}");
        }
        assert!(limits::CLIENT_CONNECTIONS_MAX as u64 <= Port::Client.share(20_000));
        assert!(limits::CLIENT_CONNECTIONS_SET_MAX as u64 <= Port::Client.share(1 << 20));
        assert!(limits::HTTP_CONNECTIONS_MAX as u64 <= Port::Http.share(1 << 20));
    }
}
