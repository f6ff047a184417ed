//! The files of a port, and the settings that follow from them.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{Error, RootCertStore};

use super::files::{TlsContents, TlsError, TlsFiles, presented, provider};
use super::verify::{Admitted, NamedClients, end_of, in_time};
use crate::net::Port;

/// The files of a port, and the clients that it accepts.
pub(super) struct ServerFiles {
    pub(super) files: TlsFiles,
    pub(super) wanted: ClientCertificates,
    pub(super) admitted: Admitted,
}

/// The certificates that a port asks its clients for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCertificates {
    None,
    Optional,
    Required,
}

/// What a port uses for new connections, and to check open ones again.
pub(super) struct ServerSettings {
    pub(super) contents: TlsContents,
    pub(super) config: Arc<ServerConfig>,
    /// Verifies the certificates of clients; `None` if the port asks for none.
    clients: Option<Arc<NamedClients>>,
    /// End of the own certificate.
    pub(super) end: Option<UnixTime>,
}

impl ServerFiles {
    /// Returns the settings of a port with these contents of its files.
    pub(super) fn settings(&self, contents: TlsContents, port: Port) -> Result<ServerSettings, TlsError> {
        let Some(identity) = contents.identity()? else {
            return Err(TlsError("a port with TLS needs a certificate; set cert and key".to_owned()));
        };
        let clients = self.clients(&contents)?;
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let builder = match clients.clone() {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients),
        };
        let mut config = builder.with_cert_resolver(presented(&identity));
        config.alpn_protocols = match port {
            Port::Client | Port::Peer => vec![b"h2".to_vec()],
            Port::Http => vec![b"http/1.1".to_vec()],
        };
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerSettings { contents, config: Arc::new(config), clients, end: end_of_own(&identity.cert) })
    }

    fn clients(&self, contents: &TlsContents) -> Result<Option<Arc<NamedClients>>, TlsError> {
        let Self { wanted, admitted, .. } = self;
        let roots = match (contents.roots()?, wanted) {
            (_, ClientCertificates::None) => return Ok(None),
            (None, ClientCertificates::Optional | ClientCertificates::Required) => {
                return Err(TlsError("a port that checks certificates needs their authority; set ca".to_owned()));
            }
            (Some(roots), ClientCertificates::Optional | ClientCertificates::Required) => roots,
        };
        let trusted = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let trusted = match wanted {
            ClientCertificates::Required => trusted,
            ClientCertificates::None | ClientCertificates::Optional => trusted.allow_unauthenticated(),
        };
        let trusted = trusted.build().map_err(|error| TlsError(error.to_string()))?;
        let (admitted, refused) = (admitted.clone(), contents.refused()?);
        Ok(Some(Arc::new(NamedClients { trusted, admitted, refused })))
    }
}

impl ServerSettings {
    /// Checks the certificates of a client again.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (Some(clients), [own, intermediates @ ..]) = (&self.clients, chain) else { return Ok(()) };
        clients.verify_client_cert(own, intermediates, now).map(drop)
    }
}

/// Returns the end of the first certificate of a chain. Its authority does not matter.
pub(super) fn end_of_own(chain: &[CertificateDer<'_>]) -> Option<UnixTime> {
    let own = chain.first()?;
    let algorithms = provider().signature_verification_algorithms;
    end_of(|time| in_time(&RootCertStore::empty(), &algorithms, own, &[], time))
}
