//! The TLS of a node toward the other nodes.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, Error};
use tokio::net::TcpStream;

use super::accept::PortTls;
use super::dial::{Protocol, client_builder, handshake, of_tls};
use super::files::{CertificateEnd, TlsError, TlsFiles, presented};
use super::recheck::not_accepted;
use super::server_files::{ClientCertificates, ServerFiles, ServerSettings, TlsSet};
use super::verify::Admitted;
use crate::net::{Connection, Connector, Port, tcp};

/// The TLS of a node toward the other nodes: always with certificates on both sides.
#[derive(Clone)]
pub struct PeerTls(Arc<TlsSet>);

impl PeerTls {
    /// Reads the files of a node.
    ///
    /// # Errors
    /// The files cannot be used, or the certificate has expired or belongs to another node. The error names the file
    /// and the fix.
    pub fn new(files: &TlsFiles, cluster: &str, node: u64) -> Result<Self, TlsError> {
        let (files, admitted) = (files.clone(), Admitted::Nodes(cluster.to_owned()));
        let source = ServerFiles { port: Port::Peer, node, files, wanted: ClientCertificates::Required, admitted };
        Ok(Self(Arc::new(TlsSet::new(source)?)))
    }

    /// Reads the files again. If they have changed, new connections to and from other nodes use them, and an open
    /// connection whose certificate they do not accept ends within a few seconds.
    ///
    /// # Errors
    /// As those of [`new`](Self::new). Then the node continues with the files that it has.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.0.reload()
    }

    /// Returns the certificate of the node, and its end.
    #[must_use]
    pub fn own(&self) -> CertificateEnd {
        self.0.own()
    }

    /// Returns the first 12 digits of the SHA-256 of the node's certificate chain.
    #[must_use]
    pub fn digest(&self) -> String {
        self.0.digest()
    }

    /// Returns the TLS of the port for the other nodes, which uses the same files.
    #[must_use]
    pub fn port(&self, allows_plain: bool) -> PortTls {
        PortTls::new(Arc::clone(&self.0), allows_plain)
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
        let cluster = self.0.source.admitted.cluster().to_owned();
        let settings = self.0.settings.subscribe();
        let current = Arc::clone(&settings.borrow());
        let config = client_builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(current.verifier(&cluster, node)))
            .with_client_cert_resolver(presented(&current.identity));
        // The name is not checked, see `OneNode`.
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let dialled = handshake(config, name, stream, Protocol::Http2).await.map_err(|error| {
            let Some(error) = of_tls(&error) else { return error };
            io::Error::new(io::ErrorKind::PermissionDenied, peer_text(error, node, &cluster))
        })?;
        let shown = dialled.get_ref().1.peer_certificates();
        let chain = shown.map(<[CertificateDer<'static>]>::to_vec).unwrap_or_default();
        Ok(Connection::new(dialled).until(async move {
            let check = |settings: &ServerSettings, now| {
                let [own, intermediates @ ..] = chain.as_slice() else { return Err(Error::NoCertificatesPresented) };
                settings.verifier(&cluster, node).accepts(own, intermediates, now)
            };
            let error = not_accepted(settings, check).await;
            tracing::warn!(to = node, "ended a connection: {}", peer_text(&error, node, &cluster));
            io::Error::new(io::ErrorKind::PermissionDenied, error)
        }))
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
