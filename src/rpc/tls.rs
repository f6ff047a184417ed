//! TLS on both sides of the wire.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::limits;

/// Certificates and keys, as PEM text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Who is believed: for a server, the authority of its clients' certificates, which it then demands.
    pub ca: Option<Vec<u8>>,
    /// The own certificate chain. A server must have one.
    pub cert: Option<Vec<u8>>,
    /// Its private key.
    pub key: Option<Vec<u8>>,
}

/// Never shows a key.
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
    /// For a server: with an authority, a client without a certificate of it is turned away.
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

    /// For a client: the server's certificate must be the authority's, for the name or address of the endpoint.
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
