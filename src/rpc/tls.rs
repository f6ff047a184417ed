//! TLS settings of clients and servers.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::limits;

/// Certificates and keys, as PEM text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificate authorities to trust. A server with one requires client certificates from it.
    pub ca: Option<Vec<u8>>,
    /// Certificate chain of this side. A server must have one.
    pub cert: Option<Vec<u8>>,
    /// Private key of that certificate.
    pub key: Option<Vec<u8>>,
}

/// Shows which parts are set, and never a key.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("ca", &self.ca.is_some())
            .field("cert", &self.cert.is_some())
            .field("key", &self.key.is_some())
            .finish()
    }
}

impl TlsSettings {
    /// Returns the settings of a server. With a certificate authority, it refuses clients without a certificate from
    /// it.
    #[must_use]
    pub fn for_server(&self) -> ServerTlsConfig {
        let mut config = ServerTlsConfig::new().timeout(Duration::from_millis(limits::HANDSHAKE_MS_MAX));
        if let Some(identity) = self.identity() {
            config = config.identity(identity);
        }
        if let Some(ca) = &self.ca {
            config = config.client_ca_root(Certificate::from_pem(ca));
        }
        config
    }

    /// Returns the settings of a client. The server's certificate must come from the authority, for the name or address
    /// of the endpoint.
    #[must_use]
    pub fn for_client(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().timeout(Duration::from_millis(limits::CONNECT_MS_MAX));
        if let Some(ca) = &self.ca {
            config = config.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some(identity) = self.identity() {
            config = config.identity(identity);
        }
        config
    }

    fn identity(&self) -> Option<Identity> {
        Some(Identity::from_pem(self.cert.as_ref()?, self.key.as_ref()?))
    }
}
