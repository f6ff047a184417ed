//! The TLS of a node toward the other nodes.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::accept::PortTls;
use super::dial::{Protocol, client_builder, handshake, of_tls};
use super::files::{CertificateEnd, TlsContents, TlsError, TlsFiles, day, presented, provider};
use super::name::{CertificateName, shown};
use super::recheck::not_accepted;
use super::refuse_list::RefuseList;
use super::server_files::{ClientCertificates, ServerFiles, end_of_own};
use super::verify::{Admitted, OneNode, in_time};
use crate::net::{Connection, Connector, Port, tcp};

/// The TLS of a node toward the other nodes: always with certificates on both sides.
#[derive(Clone)]
pub struct PeerTls(Arc<Peers>);

struct Peers {
    files: TlsFiles,
    cluster: String,
    node: u64,
    /// What new connections use.
    settings: watch::Sender<Arc<PeerSettings>>,
}

/// What follows from a node's files.
struct PeerSettings {
    contents: TlsContents,
    roots: Arc<RootCertStore>,
    identity: Arc<CertifiedKey>,
    refused: Arc<RefuseList>,
    cluster: String,
}

impl PeerTls {
    /// Reads the files of a node.
    ///
    /// # Errors
    /// The files cannot be used, or the certificate has expired or belongs to another node. The error names the file
    /// and the fix.
    pub fn new(files: &TlsFiles, cluster: &str, node: u64) -> Result<Self, TlsError> {
        let settings = watch::Sender::new(Arc::new(PeerSettings::new(files.read()?, files, cluster, node)?));
        Ok(Self(Arc::new(Peers { files: files.clone(), cluster: cluster.to_owned(), node, settings })))
    }

    /// Reads the files again. If they have changed, new connections to other nodes use them, and an open connection to
    /// a node whose certificate they do not accept ends within a few seconds.
    ///
    /// # Errors
    /// As those of [`new`](Self::new). Then the node continues with the files that it has.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let Peers { files, cluster, node, settings } = &*self.0;
        let contents = files.read()?;
        let changed = settings.borrow().contents != contents;
        if changed {
            settings.send_replace(Arc::new(PeerSettings::new(contents, files, cluster, *node)?));
        }
        Ok(changed)
    }

    /// Returns the certificate of the node, and its end.
    #[must_use]
    pub fn own(&self) -> CertificateEnd {
        CertificateEnd::new(&self.0.files, end_of_own(&self.0.settings.borrow().identity.cert))
    }

    /// Returns the TLS of the port for the other nodes.
    ///
    /// # Errors
    /// The files cannot be used any more.
    pub fn port(&self, allows_plain: bool) -> Result<PortTls, TlsError> {
        let Peers { files, cluster, .. } = &*self.0;
        let (files, admitted) = (files.clone(), Admitted::Nodes(cluster.clone()));
        PortTls::new(Port::Peer, ServerFiles { files, wanted: ClientCertificates::Required, admitted }, allows_plain)
    }

    /// Returns a connector for TLS over TCP. It accepts only the certificate of the node that it dials.
    #[must_use]
    pub fn connector(&self) -> Connector {
        let tls = self.clone();
        Connector::new(move |target| {
            let tls = tls.clone();
            Box::pin(async move {
                let stream = tcp(&target.address).await?;
                let Some(node) = target.node else { return Err(io::Error::other("only a node can be dialled")) };
                tls.handshake(node, stream).await
            })
        })
    }

    /// Returns the connection to a node, which ends when the certificate of that node is not accepted any more.
    async fn handshake(&self, node: u64, stream: TcpStream) -> io::Result<Connection> {
        let settings = self.0.settings.subscribe();
        let current = Arc::clone(&settings.borrow());
        let config = client_builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(current.verifier(node)))
            .with_client_cert_resolver(presented(&current.identity));
        // The name is not checked, see `OneNode`.
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let dialled = handshake(config, name, stream, Protocol::Http2).await.map_err(|error| {
            let Some(error) = of_tls(&error) else { return error };
            io::Error::new(io::ErrorKind::PermissionDenied, peer_text(error, node, &self.0.cluster))
        })?;
        let shown = dialled.stream().get_ref().1.peer_certificates();
        let chain = shown.map(<[CertificateDer<'static>]>::to_vec).unwrap_or_default();
        Ok(Connection::new(dialled).until(async move {
            let check = move |settings: &PeerSettings, now| settings.check(&chain, node, now);
            let error = not_accepted(settings, check).await;
            tracing::warn!(to = node, "ended a connection: {}", peer_text(&error, node, &current.cluster));
            io::Error::new(io::ErrorKind::PermissionDenied, error)
        }))
    }
}

impl PeerSettings {
    fn new(contents: TlsContents, files: &TlsFiles, cluster: &str, node: u64) -> Result<Self, TlsError> {
        let (Some(roots), Some(identity)) = (contents.roots()?, contents.identity()?) else {
            return Err(TlsError(
                "nodes need an authority and a certificate; set ca, cert and key under [tls]".to_owned(),
            ));
        };
        let file = files.own();
        let [own, intermediates @ ..] = identity.cert.as_slice() else {
            return Err(TlsError(format!("{file} has no certificate; give a certificate in PEM")));
        };
        if !CertificateName::of(own).is_some_and(|name| name.is_node(cluster, node)) {
            let (name, fix) = (shown(own), format!("give node {node}'s file"));
            return Err(TlsError(format!("{file} is {name}, and this is node {node} of {cluster}; {fix}")));
        }
        let algorithms = provider().signature_verification_algorithms;
        in_time(&roots, &algorithms, own, intermediates, UnixTime::now()).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                TlsError(format!("{file} expired on {}; renew it", day(not_after)))
            }
            other => TlsError(format!("{file} cannot be used: {other}; renew it")),
        })?;
        let refused = contents.refused()?;
        Ok(Self { contents, roots, identity, refused, cluster: cluster.to_owned() })
    }

    fn verifier(&self, node: u64) -> OneNode {
        OneNode {
            roots: Arc::clone(&self.roots),
            refused: Arc::clone(&self.refused),
            algorithms: provider().signature_verification_algorithms,
            cluster: self.cluster.clone(),
            node,
        }
    }

    /// Checks the certificates of a node again.
    fn check(&self, chain: &[CertificateDer<'_>], node: u64, now: UnixTime) -> Result<(), Error> {
        let [own, intermediates @ ..] = chain else { return Err(Error::NoCertificatesPresented) };
        self.verifier(node).accepts(own, intermediates, now)
    }
}

/// Returns the text of a failed handshake with another node, for a log line behind its address.
fn peer_text(error: &Error, node: u64, cluster: &str) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            format!("its certificate is not that of node {node} of {cluster}")
        }
        Error::InvalidCertificate(CertificateError::Revoked) => {
            format!("the certificate of node {node} is on the refuse list")
        }
        Error::AlertReceived(alert) => format!("it refused this node's certificate: {alert:?}"),
        other => format!("TLS: {other}"),
    }
}
