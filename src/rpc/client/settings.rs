//! How a client reaches its cluster.

use std::path::PathBuf;
use std::time::Duration;

use crate::net::{Connector, TlsFiles};

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// Addresses of its nodes, `HOST:PORT` each; one that answers is enough.
    pub endpoints: Vec<String>,
    /// Id of the only cluster to accept; endpoints of other clusters are left out. `None` accepts the cluster that the
    /// endpoints name first, and endpoints of two clusters are an error. A client never changes its cluster.
    pub cluster: Option<u128>,
    /// Called with a sentence about each endpoint that is left out because another cluster or another service answers
    /// there.
    pub on_left_out: Option<fn(&str)>,
    /// Files for TLS: the authority of the nodes, and the client's certificate if the nodes demand one. `None` for
    /// plain text. The files are read for each connection.
    pub tls: Option<TlsFiles>,
    /// File with a token that proves the client's principal; `None` to show no token. It is read for each connection
    /// and again when a node refuses it, and the token is sent only with TLS or to this machine.
    pub auth_token_file: Option<PathBuf>,
    /// Time limit for connecting and one request. It does not limit waits for locks.
    pub request_wait: Duration,
    /// Connector for another transport than TCP; `None` for TCP.
    pub connector: Option<Connector>,
}

impl RemoteSettings {
    /// Returns settings for plain text with the default time limit.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            cluster: None,
            on_left_out: None,
            tls: None,
            auth_token_file: None,
            request_wait: crate::service::REQUEST_WAIT,
            connector: None,
        }
    }
}
