//! What the requests of one connection have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::tls::CertificateName;

/// The identity of an accepted connection in this process. Each request of the connection has a clone.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    pub(super) id: u64,
    /// Bytes of the messages that have arrived in part.
    pub(crate) half_received: Arc<AtomicUsize>,
    /// The name that the other side has proven by its certificate; `None` without a certificate.
    pub(crate) proven: Option<Arc<CertificateName>>,
    /// Whether the connection is in plain text from another machine, so that others may read what is sent on it.
    pub(crate) exposed: bool,
    /// Whether the connection is in plain text.
    #[cfg_attr(not(feature = "cli"), allow(dead_code))] // The HTTP port reads it.
    pub(crate) plain: bool,
    /// Address of the other side, if it is known.
    pub(crate) from: Option<SocketAddr>,
    /// Whether the node has ended the connection because of its certificate.
    pub(crate) certificate: CertificateState,
}

/// Whether this node has ended a connection because it no longer accepts the certificate of the other side. Clones
/// share the state. The sessions of such a client last for their TTL: its streams did not break, so no grace starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct CertificateState(Arc<AtomicBool>);

impl CertificateState {
    /// Whether the certificate has ended its connection.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Records that the certificate ends its connection.
    pub(crate) fn refuse(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl ConnectionInfo {
    /// Creates the identity of another connection.
    pub(crate) fn new(proven: Option<Arc<CertificateName>>, exposed: bool, from: Option<SocketAddr>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            half_received: Arc::default(),
            proven,
            exposed,
            plain: exposed,
            from,
            certificate: CertificateState::default(),
        }
    }

    /// Returns the number of the connection, which no other connection of this process has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}
