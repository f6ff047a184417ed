//! The TLS of a node toward the other nodes: its port for them, and the connections that it dials with the same files.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, Error};
use tokio::net::TcpStream;

use super::accept::PortTls;
use super::dial::{Protocol, client_builder, handshake, of_tls};
use super::files::{TlsError, TlsFiles, presented};
use super::recheck::not_accepted;
use super::server_files::{ClientCertificates, ServerFiles, ServerSettings};
use super::verify::Admitted;
use crate::net::{Connection, Connector, Port, tcp};

impl PortTls {
    /// Reads the files of a node for its port for the other nodes, and for the connections to those nodes. Over TLS,
    /// the port always demands a certificate. With `allows_plain`, it also accepts connections without TLS.
    ///
    /// # Errors
    /// The files cannot be used, or the certificate has expired or belongs to another node. The error names the file
    /// and the fix.
    pub fn for_nodes(files: &TlsFiles, cluster: &str, node: u64, allows_plain: bool) -> Result<Self, TlsError> {
        let (files, admitted) = (files.clone(), Admitted::Nodes(cluster.to_owned()));
        let source = ServerFiles { port: Port::Peer, node, files, wanted: ClientCertificates::Required, admitted };
        Self::new(source, allows_plain)
    }

    /// Returns a connector for TLS over TCP, which accepts only the certificate of the node that it dials.
    #[must_use]
    pub fn connector(&self) -> Connector {
        let tls = self.clone();
        Connector::new(move |target| {
            let tls = tls.clone();
            Box::pin(async move {
                let stream = tcp(&target.address).await?;
                let Some(node) = target.node else { return Err(io::Error::other("only a node can be dialled")) };
                tls.dial(node, stream).await
            })
        })
    }

    /// Returns the connection to a node, which ends when the certificate of that node is not accepted any more.
    async fn dial(&self, node: u64, stream: TcpStream) -> io::Result<Connection> {
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
