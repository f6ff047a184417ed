//! The files of a port, and the settings that follow from them. A node dials other nodes with those of its own port.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{CertificateError, Error, RootCertStore};

use super::files::{TlsContents, TlsError, TlsFiles, day, presented, provider};
use super::name::{CertificateName, shown};
use super::refuse_list::RefuseList;
use super::verify::{Admitted, NamedClients, OneNode, end_of, in_time};
use crate::net::Port;

/// The files of a port of a node, and the clients that it accepts.
pub(super) struct ServerFiles {
    pub(super) port: Port,
    pub(super) node: u64,
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
    pub(super) identity: Arc<CertifiedKey>,
    roots: Arc<RootCertStore>,
    refused: Arc<RefuseList>,
}

impl ServerFiles {
    /// Returns the settings of a port with these contents of its files.
    pub(super) fn settings(&self, contents: TlsContents) -> Result<ServerSettings, TlsError> {
        let Some(identity) = contents.identity()? else {
            return Err(TlsError("a port with TLS needs a certificate; set cert and key".to_owned()));
        };
        let (roots, refused) = (contents.roots()?, contents.refused()?);
        let clients = self.clients(roots.clone(), &refused)?;
        let roots = roots.unwrap_or_else(|| Arc::new(RootCertStore::empty()));
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let builder = match clients.clone() {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients),
        };
        let mut config = builder.with_cert_resolver(presented(&identity));
        config.alpn_protocols = match self.port {
            Port::Client | Port::Peer => vec![b"h2".to_vec()],
            Port::Http => vec![b"http/1.1".to_vec()],
        };
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerSettings { contents, config: Arc::new(config), clients, identity, roots, refused })
    }

    /// Refuses an own certificate that no client or node would accept. A port for clients may show one of a public
    /// authority, which has no name in a cluster.
    pub(super) fn check_own(&self, settings: &ServerSettings) -> Result<(), TlsError> {
        let Self { node, files, admitted, .. } = self;
        let (chain, roots) = (&settings.identity.cert[..], &settings.roots);
        let (file, cluster) = (files.own(), admitted.cluster());
        let for_nodes = matches!(admitted, Admitted::Nodes(_));
        let [own, intermediates @ ..] = chain else {
            return Err(TlsError(format!("{file} has no certificate; give a certificate in PEM")));
        };
        if !CertificateName::of(own).map_or(!for_nodes, |name| name.is_node(cluster, *node)) {
            let (name, fix) = (shown(own), format!("give node {node}'s file"));
            return Err(TlsError(format!("{file} is {name}, and this is node {node} of {cluster}; {fix}")));
        }
        // Clients may accept other authorities, and may find another chain.
        let intermediates = if for_nodes { intermediates } else { &[] };
        let algorithms = provider().signature_verification_algorithms;
        let problem = match in_time(roots, &algorithms, own, intermediates, UnixTime::now()) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                // A certificate of a public authority has no name in a cluster.
                let is_own = CertificateName::of(own).is_some();
                let fix = if is_own { "run lockkeeper certs DIR --renew" } else { "renew it" };
                format!("expired on {}; {fix}", day(not_after))
            }
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
                format!("is not valid before {}; correct the clock of this machine, or renew it", day(not_before))
            }
            Err(Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. })) => {
                "is not for servers; give a certificate of a server".to_owned()
            }
            Err(other) if for_nodes => format!("cannot be used: {other}; renew it"),
            Ok(()) | Err(_) => return Ok(()),
        };
        Err(TlsError(format!("{file} {problem}")))
    }

    fn clients(
        &self,
        roots: Option<Arc<RootCertStore>>,
        refused: &Arc<RefuseList>,
    ) -> Result<Option<Arc<NamedClients>>, TlsError> {
        let Self { wanted, admitted, .. } = self;
        let roots = match (roots, wanted) {
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
        let (admitted, refused) = (admitted.clone(), Arc::clone(refused));
        Ok(Some(Arc::new(NamedClients { trusted, admitted, refused })))
    }
}

impl ServerSettings {
    /// Checks the certificates of a client again.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (Some(clients), [own, intermediates @ ..]) = (&self.clients, chain) else { return Ok(()) };
        clients.verify_client_cert(own, intermediates, now).map(drop)
    }

    /// Returns the verifier of the certificate of a node that this one dials.
    pub(super) fn verifier(&self, cluster: &str, node: u64) -> OneNode {
        OneNode {
            roots: Arc::clone(&self.roots),
            refused: Arc::clone(&self.refused),
            algorithms: provider().signature_verification_algorithms,
            cluster: cluster.to_owned(),
            node,
        }
    }

    /// Returns the end of the own certificate. Its authority does not matter.
    pub(super) fn own_end(&self) -> Option<UnixTime> {
        let own = self.identity.cert.first()?;
        let algorithms = provider().signature_verification_algorithms;
        end_of(|time| in_time(&RootCertStore::empty(), &algorithms, own, &[], time))
    }
}
