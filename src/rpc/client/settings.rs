//! How a client reaches its cluster.

use std::time::Duration;

use crate::net::Connector;
use crate::rpc::tls::TlsSettings;

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// Where its nodes may be, `HOST:PORT` each; one that answers is enough.
    pub endpoints: Vec<String>,
    /// The only cluster to believe, by its id; endpoints of others are left out. With `None` it is the one that the
    /// endpoints name at first, which is an error where they name two. A client stays with its cluster for its whole life.
    pub cluster: Option<u128>,
    /// Is called with a sentence about each endpoint that is left out, as another cluster or something else answers there.
    pub on_left_out: Option<fn(&str)>,
    /// Encryption; `None` for plain text.
    pub tls: Option<TlsSettings>,
    /// Connecting plus one request accepts at most so long. Waits have no bound of their own.
    pub request_wait: Duration,
    /// Another way to dial than TCP; `None` for TCP.
    pub connector: Option<Connector>,
}

impl RemoteSettings {
    /// Plain text, and the usual time for a request.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            cluster: None,
            on_left_out: None,
            tls: None,
            request_wait: crate::service::REQUEST_WAIT,
            connector: None,
        }
    }
}
