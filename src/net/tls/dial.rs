//! Connections that a node or a client dials with TLS.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tonic::codegen::StdError as BoxError;
use tonic::codegen::{Service, http::Uri};

use super::accept::{ClientCertificates, PortTls, ServerFiles};
use super::files::{TlsError, TlsFiles, day, presented, provider};
use super::name::{CertificateName, shown};
use super::verify::{Admitted, OneNode, in_time};
use crate::net::prefixed::Prefixed;
use crate::net::{Connection, Connector, Port, Target, tcp};

/// Most bytes that are read to learn whether the other side accepted the handshake.
const FIRST_BYTES: usize = 64;

/// A connection with TLS whose other side has sent its first bytes.
type Dialled<S> = Prefixed<TlsStream<S>>;

/// The TLS of a node toward the other nodes: always with certificates on both sides.
#[derive(Clone)]
pub struct PeerTls(Arc<Peers>);

struct Peers {
    files: TlsFiles,
    cluster: String,
    node: u64,
    /// What new connections use.
    set: RwLock<Arc<PeerSet>>,
}

/// The contents of a node's files.
struct PeerSet {
    roots: Arc<RootCertStore>,
    identity: Arc<CertifiedKey>,
}

impl PeerTls {
    /// Reads the files of a node.
    ///
    /// # Errors
    /// The files cannot be used, or the certificate has expired or belongs to another node. The error names the file
    /// and the fix.
    pub fn new(files: &TlsFiles, cluster: &str, node: u64) -> Result<Self, TlsError> {
        let set = RwLock::new(Arc::new(PeerSet::read(files, cluster, node)?));
        Ok(Self(Arc::new(Peers { files: files.clone(), cluster: cluster.to_owned(), node, set })))
    }

    /// Reads the files again, for new connections to other nodes.
    ///
    /// # Errors
    /// As those of [`new`](Self::new). Then the node continues with the files that it has.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Peers { files, cluster, node, set } = &*self.0;
        let read = PeerSet::read(files, cluster, *node)?;
        *set.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
        Ok(())
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
                let dialled = tls.handshake(&target, stream).await?;
                Ok(Connection::new(dialled))
            })
        })
    }

    async fn handshake<S>(&self, target: &Target, stream: S) -> io::Result<Dialled<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Peers { cluster, set, .. } = &*self.0;
        let set = Arc::clone(&set.read().unwrap_or_else(PoisonError::into_inner));
        let Some(node) = target.node else { return Err(io::Error::other("only a node can be dialled")) };
        let algorithms = provider().signature_verification_algorithms;
        let verifier = OneNode { roots: Arc::clone(&set.roots), algorithms, cluster: cluster.clone(), node };
        let config = client_builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(presented(&set.identity));
        // The name is not checked, see `OneNode`.
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        handshake(config, name, stream).await.map_err(|error| {
            let Some(error) = of_tls(&error) else { return error };
            io::Error::new(io::ErrorKind::PermissionDenied, peer_text(error, node, cluster))
        })
    }
}

impl PeerSet {
    fn read(files: &TlsFiles, cluster: &str, node: u64) -> Result<Self, TlsError> {
        let (Some(roots), Some(identity)) = (files.roots()?, files.identity()?) else {
            return Err(TlsError(
                "nodes need an authority and a certificate; set ca, cert and key under [tls]".to_owned(),
            ));
        };
        let file = files.cert.as_ref().map_or_else(String::new, |path| path.display().to_string());
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
        Ok(Self { roots, identity })
    }
}

/// Returns the text of a failed handshake with another node, for a log line behind its address.
fn peer_text(error: &Error, node: u64, cluster: &str) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            format!("its certificate is not that of node {node} of {cluster}")
        }
        Error::AlertReceived(alert) => format!("it refused this node's certificate: {alert:?}"),
        other => format!("TLS: {other}"),
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn client_builder() -> io::Result<Builder> {
    ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(io::Error::other)
}

/// Completes a handshake and waits for the first bytes of the other side. In TLS 1.3 a server judges the certificate of
/// its client after the client has completed the handshake, so only these bytes prove that the server accepts it. A
/// node always sends first: its HTTP/2 settings.
async fn handshake<S>(mut config: ClientConfig, name: ServerName<'static>, stream: S) -> io::Result<Dialled<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    let mut first = vec![0; FIRST_BYTES];
    let read = stream.read(&mut first).await?;
    first.truncate(read);
    if first.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended after the handshake"));
    }
    Ok(Prefixed::new(first, stream))
}

/// Returns the error of TLS in an I/O error; `None` for errors of the network.
fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Why a client got no connection with TLS. The text names the address and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsRefusal {
    text: String,
    /// Whether the node refused the client, in contrast to a client that refused the node.
    pub by_node: bool,
}

impl TlsRefusal {
    /// Finds the refusal among the causes of an error.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(refusal) = error.downcast_ref() {
                return Some(refusal);
            }
            cause = error.source();
        }
        None
    }

    fn new(address: &str, host: &str, files: &TlsFiles, error: &io::Error) -> Option<Self> {
        let file =
            |path: &Option<std::path::PathBuf>| path.as_ref().map_or_else(String::new, |p| p.display().to_string());
        let (ca, cert) = (file(&files.ca), file(&files.cert));
        let of_node = |text: String| Some(Self { text: format!("{address}: {text}"), by_node: false });
        let by_node = |text: String| Some(Self { text: format!("{address} {text}"), by_node: true });
        let error = of_tls(error)?;
        match error {
            Error::AlertReceived(AlertDescription::CertificateRequired) => {
                by_node("demands a certificate: give --cert and --key".to_owned())
            }
            Error::AlertReceived(AlertDescription::UnknownCA) => {
                by_node(format!("does not know the authority of {cert}"))
            }
            Error::AlertReceived(AlertDescription::CertificateExpired) => {
                by_node(format!("refused {cert}: it has expired or is not valid yet"))
            }
            Error::AlertReceived(AlertDescription::UnsupportedCertificate) => {
                by_node(format!("refused {cert}: it is not a client certificate"))
            }
            Error::AlertReceived(AlertDescription::AccessDenied) => by_node(format!("refused the name in {cert}")),
            Error::AlertReceived(AlertDescription::CertificateRevoked) => {
                by_node(format!("refused {cert}: it was revoked"))
            }
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                of_node(format!("its certificate is not from {ca}"))
            }
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
                of_node(format!("its certificate is for {}, not {host}", presented.join(", ")))
            }
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                of_node(format!("its certificate expired on {}", day(*not_after)))
            }
            Error::InvalidMessage(_) => {
                Some(Self { text: format!("{address} does not speak TLS; leave --ca out"), by_node: false })
            }
            other => of_node(format!("TLS: {other}")),
        }
    }
}

/// Dials nodes for a client: over TLS on top of another connector. Reads the files for every connection, so that
/// renewed files need no restart.
#[derive(Debug, Clone)]
pub struct TlsConnector<C> {
    /// Files of the client.
    pub files: Arc<TlsFiles>,
    /// Connector for the connection below TLS.
    pub below: C,
}

impl<C, S> Service<Uri> for TlsConnector<C>
where
    C: Service<Uri, Response = TokioIo<S>>,
    C::Error: Into<BoxError> + Send,
    C::Future: Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Response = TokioIo<Connection>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.below.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (files, dialling) = (Arc::clone(&self.files), self.below.call(uri.clone()));
        Box::pin(async move {
            let stream = dialling.await.map_err(Into::into)?.into_inner();
            let address = uri.authority().map_or_else(String::new, ToString::to_string);
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host.clone())?;
            match handshake(client_config(&files)?, name, stream).await {
                Ok(stream) => Ok(TokioIo::new(Connection::new(stream))),
                Err(error) => Err(match TlsRefusal::new(&address, &host, &files, &error) {
                    Some(refusal) => refusal.into(),
                    None => error.into(),
                }),
            }
        })
    }
}

fn client_config(files: &TlsFiles) -> Result<ClientConfig, BoxError> {
    let Some(roots) = files.roots()? else {
        return Err(TlsError("TLS needs the authority of the nodes; give --ca".to_owned()).into());
    };
    let builder = client_builder()?.with_root_certificates(roots);
    Ok(match files.identity()? {
        Some(identity) => builder.with_client_cert_resolver(presented(&identity)),
        None => builder.with_no_client_auth(),
    })
}
