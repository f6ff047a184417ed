//! Connections that a node or a client dials with TLS.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tonic::codegen::StdError as BoxError;
use tonic::codegen::{Service, http::Uri};

use super::files::{TlsError, TlsFiles, day, path_text, presented, provider};
use crate::net::{Connection, causes};

pub(super) type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

pub(super) fn client_builder() -> io::Result<Builder> {
    ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(io::Error::other)
}

/// What a client speaks over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, in which a server answers only after a request.
    Http1,
    /// HTTP/2, in which a server sends its settings at once.
    Http2,
}

/// Completes a handshake, and with HTTP/2 waits for the first bytes of the other side. In TLS 1.3 a server judges the
/// certificate of its client after the client has completed the handshake, so only these bytes prove that the server
/// accepts it.
pub(super) async fn handshake<S>(
    mut config: ClientConfig,
    name: ServerName<'static>,
    stream: S,
    protocol: Protocol,
) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    config.resumption = Resumption::disabled();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    if protocol == Protocol::Http2 && stream.fill_buf().await?.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended after the handshake"));
    }
    Ok(stream)
}

/// Returns the error of TLS in an I/O error; `None` for errors of the network.
pub(super) fn of_tls(error: &io::Error) -> Option<&Error> {
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
        causes(error).find_map(|cause| cause.downcast_ref())
    }

    fn new(address: &str, host: &str, files: &TlsFiles, error: &io::Error) -> Option<Self> {
        let (ca, cert) = (path_text(&files.ca), files.own());
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
                let hosts = presented.iter().filter_map(|name| host_of(name)).collect::<Vec<_>>().join(", ");
                let fix = "make another one with lockkeeper certs DIR --node ID=HOST --renew node-ID";
                of_node(format!("its certificate is for {hosts}, not {host}; {fix}"))
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
    /// Protocol of the port that is dialled.
    pub protocol: Protocol,
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
        let (files, protocol) = (Arc::clone(&self.files), self.protocol);
        let dialling = self.below.call(uri.clone());
        Box::pin(async move {
            let stream = dialling.await.map_err(Into::into)?.into_inner();
            let address = uri.authority().map_or_else(String::new, ToString::to_string);
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host.clone())?;
            match handshake(client_config(&files)?, name, stream, protocol).await {
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
    let contents = files.read()?;
    let Some(roots) = contents.roots()? else {
        return Err(TlsError("TLS needs the authority of the nodes; give --ca".to_owned()).into());
    };
    let builder = client_builder()?.with_root_certificates(roots);
    Ok(match contents.identity()? {
        Some(identity) => builder.with_client_cert_resolver(presented(&identity)),
        None => builder.with_no_client_auth(),
    })
}

/// Returns the host in the name of a certificate as rustls writes it; `None` if the name is no host.
fn host_of(presented: &str) -> Option<&str> {
    let (kind, rest) = presented.split_once('(')?;
    (kind != "UniformResourceIdentifier").then(|| rest.trim_end_matches(')').trim_matches('"'))
}
