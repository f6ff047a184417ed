//! `[limits]`: how many connections and watches a node serves.

use serde::Deserialize;

use super::place::{Placed, Refused};
use crate::limits;
use crate::net::ConnectionsMax;

/// How many connections and watches a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most connections of the ports for clients.
    pub connections: ConnectionsMax,
    /// Most watches of a principal on this node; of a connection without `[auth]`.
    pub watchers_a_principal: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: ConnectionsMax::default(), watchers_a_principal: limits::WATCHERS_A_PRINCIPAL_MAX }
    }
}

/// `[limits]` as written.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftLimits {
    pub(super) client_connections: Option<Placed<u64>>,
    pub(super) client_connections_an_address: Option<Placed<u64>>,
    pub(super) http_connections: Option<Placed<u64>>,
    pub(super) http_connections_an_address: Option<Placed<u64>>,
    pub(super) watchers_a_principal: Option<Placed<u64>>,
}

impl DraftLimits {
    pub(super) fn check(&self) -> Result<Limits, Refused> {
        let Limits { connections, watchers_a_principal } = Limits::default();
        let ConnectionsMax { client, client_an_address, http, http_an_address } = connections;
        let clients = (limits::CLIENT_CONNECTIONS_SET_MAX, "what the descriptors of a process suffice for");
        let of_http = (limits::HTTP_CONNECTIONS_MAX, "the descriptors that are kept for HTTP");
        let of_node = (limits::WATCHERS_A_NODE_MAX, "the limit of a node");
        let (one_client, one_http) = (&self.client_connections_an_address, &self.http_connections_an_address);
        Ok(Limits {
            connections: ConnectionsMax {
                client: bounded("client_connections", &self.client_connections, client, clients)?,
                client_an_address: bounded("client_connections_an_address", one_client, client_an_address, clients)?,
                http: bounded("http_connections", &self.http_connections, http, of_http)?,
                http_an_address: bounded("http_connections_an_address", one_http, http_an_address, of_http)?,
            },
            watchers_a_principal: bounded(
                "watchers_a_principal",
                &self.watchers_a_principal,
                watchers_a_principal,
                of_node,
            )?,
        })
    }
}

/// Returns the written value if it is at least 1 and at most the first part of `most`, whose second part says why.
fn bounded(key: &str, at: &Option<Placed<u64>>, default: usize, most: (usize, &str)) -> Result<usize, Refused> {
    let Some(at) = at else { return Ok(default) };
    let (most, why) = most;
    let value = usize::try_from(at.value).ok().filter(|value| (1..=most).contains(value));
    value.ok_or_else(|| {
        let problem = format!("limits.{key} is {}, not 1 to {most}, {why}", at.value);
        Refused::new(&at.place, problem, format!("correct it, or remove it for {default}"))
    })
}
