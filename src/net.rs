//! Connections over any transport: how they are dialled and accepted. A node uses TCP. A simulation runs the same code
//! on its own network.
//!
//! Knows: limits, and how a connection of HTTP begins. Never: what is sent on it.

mod arrivals;
mod closed_first;
mod connection_count;
mod connection_info;
mod descriptor_share;
mod first_request;
mod port;
mod tls;
mod write_coalescing;

use std::error::Error;
use std::io::{self, IoSlice};
use std::iter::successors;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::{Service, http::Uri};
use tonic::transport::server::Connected;

pub(crate) use closed_first::closed_first;
#[cfg(feature = "cli")]
pub(crate) use connection_count::network;
pub(crate) use connection_info::CertificateState;
pub use connection_info::ConnectionInfo;
#[cfg(feature = "cli")]
pub(crate) use descriptor_share::connections_max;
use first_request::Admission;
pub use port::{ConnectionsMax, Port};
#[cfg(feature = "cli")]
pub(crate) use tls::RefuseList;
#[cfg(all(test, feature = "cli"))]
pub(crate) use tls::tests::Certs as TestCerts;
pub use tls::{
    CertificateEnd, CertificateName, PortTls, Protocol, Role, TlsConnector, TlsError, TlsFiles, TlsRefusal, digest,
};
pub use write_coalescing::{CoalescedWrites, CoalescingConnector};

trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection over any stream of bytes.
pub struct Connection {
    stream: Box<dyn Transport>,
    /// Its place among the connections of a port; `None` if it has none, or if its certificate has ended it.
    admission: Option<Admission>,
    /// Completes when the connection must end because of its certificate, with the reason.
    end: Option<End>,
    info: ConnectionInfo,
}

type End = Pin<Box<dyn Future<Output = io::Error> + Send>>;

impl Connection {
    /// Creates a connection over a stream of bytes.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let info = ConnectionInfo::new(None, false, None);
        Self { stream: Box::new(stream), admission: None, end: None, info }
    }

    fn accepted(stream: impl Transport + 'static, admission: Admission, info: ConnectionInfo) -> Self {
        Self { stream: Box::new(stream), admission: Some(admission), end: None, info }
    }

    /// Creates an accepted connection in plain text, which others may read unless both sides are on this machine.
    fn plain(stream: TcpStream, admission: Admission, from: Option<SocketAddr>) -> Self {
        let exposed = from.is_none_or(|from| !from.ip().to_canonical().is_loopback());
        let info = ConnectionInfo { plain: true, ..ConnectionInfo::new(None, exposed, from) };
        Self::accepted(stream, admission, info)
    }

    /// Returns this connection, which fails as soon as a future completes, with its error.
    fn until(self, end: impl Future<Output = io::Error> + Send + 'static) -> Self {
        Self { end: Some(Box::pin(end)), ..self }
    }

    /// Returns the stream, or the error of a connection that must end. Every read, write and flush asks: a server that
    /// works on one request, or whose client takes no answer, does not read.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut (dyn Transport + 'static)>> {
        if let Some(Poll::Ready(error)) = self.end.as_mut().map(|end| end.as_mut().poll(cx)) {
            self.info.certificate.refuse();
            // A future is not polled again after it has completed.
            self.end = None;
            self.stream = Box::new(tokio::io::empty());
            self.admission = None;
            return Err(error);
        }
        if self.info.certificate.is_refused() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Pin::new(&mut *self.stream))
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;
    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.stream(cx)?.poll_read(cx, buf);
        let Some(admission) = &mut self.admission else { return read };
        admission.follow(cx, &buf.filled()[before..], read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write_vectored(cx, parts)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}

/// A future that dials and returns the connection.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

/// What a connector dials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Address of the other process, `host:port`.
    pub address: String,
    /// Id of the node that must answer there; `None` for any node.
    pub node: Option<u64>,
}

/// Dials another process.
#[derive(Clone)]
pub struct Connector {
    dial: Arc<dyn Fn(Target) -> Dialling + Send + Sync>,
    node: Option<u64>,
}

impl Connector {
    /// Creates a connector that calls a function to dial.
    pub fn new(dial: impl Fn(Target) -> Dialling + Send + Sync + 'static) -> Self {
        Self { dial: Arc::new(dial), node: None }
    }

    /// Returns a connector for plain TCP to other nodes, which sends small messages without delay.
    #[must_use]
    pub fn tcp() -> Self {
        Self::new(|target| Box::pin(async move { Ok(Connection::new(tcp(&target.address).await?)) }))
    }

    /// Dials the target.
    #[cfg(test)]
    pub(crate) async fn dialled(&self, target: Target) -> io::Result<Connection> {
        (self.dial)(target).await
    }

    /// Returns this connector for connections to one node.
    #[must_use]
    pub(crate) fn to_node(&self, node: u64) -> Self {
        Self { node: Some(node), ..self.clone() }
    }
}

async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = closed_first::closed_early(TcpStream::connect(address).await?.into_std()?);
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a connector")
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let address = uri.authority().map_or_else(String::new, ToString::to_string);
        let dialling = (self.dial)(Target { address, node: self.node });
        Box::pin(async move { Ok(TokioIo::new(dialling.await?)) })
    }
}

/// A stream of accepted connections.
pub type Incoming = BoxStream<'static, io::Result<Connection>>;

/// Returns the connections from other nodes that a TCP listener accepts, see [`connections`].
pub fn accepted(listener: TcpListener, tls: Option<PortTls>) -> Incoming {
    Box::pin(connections(listener, Port::Peer, ConnectionsMax::default(), tls).map(Ok))
}

/// Returns the connections of a TCP listener, without delay for small messages. Their peers must begin a request in
/// time. With TLS these are the ones whose handshakes succeeded. `most` limits the ports for clients; the port for the
/// other nodes has fixed limits.
///
/// The stream runs until it is dropped. It closes a connection at once if the port may have no more of them, or no more
/// from its address. While the listener fails, or the port has used its share of the process's descriptors, it pauses
/// and retries.
pub fn connections(
    listener: TcpListener,
    port: Port,
    most: ConnectionsMax,
    tls: Option<PortTls>,
) -> BoxStream<'static, Connection> {
    let arrivals = arrivals::arrivals(listener, port, most);
    match tls {
        Some(tls) => tls.secured(arrivals).boxed(),
        None => {
            let plain = |(stream, admission): (TcpStream, _)| {
                let from = stream.peer_addr().ok();
                Connection::plain(stream, admission, from)
            };
            arrivals.map(plain).boxed()
        }
    }
}

/// Returns the error and its causes, the innermost one last.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// Returns the text of the error and of each cause: tonic's own text says only "transport error".
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
