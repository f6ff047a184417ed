//! What the requests of one connection have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::tls::CertificateName;

/// The identity of an accepted connection in this process. Each request of the connection has a clone.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    id: u64,
    /// Bytes of the messages that have arrived in part.
    pub(crate) half_received: Arc<AtomicUsize>,
    /// The name that the other side has proven by its certificate; `None` without a certificate.
    pub(crate) proven: Option<Arc<CertificateName>>,
    /// Whether the connection is in plain text from another machine, so that others may read what is sent on it.
    pub(crate) exposed: bool,
    /// Address of the other side, if it is known.
    pub(crate) from: Option<SocketAddr>,
}

impl ConnectionInfo {
    /// Creates the identity of another connection.
    pub(crate) fn new(proven: Option<Arc<CertificateName>>, exposed: bool, from: Option<SocketAddr>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), half_received: Arc::default(), proven, exposed, from }
    }

    /// Returns the number of the connection, which no other connection of this process has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}
