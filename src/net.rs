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
mod write_coalescing;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::{Service, http::Uri};
use tonic::transport::server::Connected;

pub use arrivals::arrivals;
pub(crate) use closed_first::closed_first;
pub use connection_info::ConnectionInfo;
pub use first_request::Accepted;
pub use port::Port;
pub use write_coalescing::{CoalescedWrites, CoalescingConnector};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection over any stream of bytes.
pub struct Connection(Box<dyn Stream>);

impl Connection {
    /// Creates a connection over a stream of bytes.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Box::new(stream))
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;
    fn connect_info(&self) -> ConnectionInfo {
        ConnectionInfo::new()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// A future that dials and returns the connection.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

/// Dials another process at its address, `host:port`.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> Dialling + Send + Sync>);

impl Connector {
    /// Creates a connector that calls a function to dial.
    pub fn new(dial: impl Fn(String) -> Dialling + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    /// Returns a connector for plain TCP to other nodes, which sends small messages without delay.
    #[must_use]
    pub fn tcp() -> Self {
        Self::new(|address| {
            Box::pin(async move {
                let stream = closed_first(TcpStream::connect(&address).await?.into_std()?);
                stream.set_nodelay(true)?;
                Ok(Connection::new(TcpStream::from_std(stream)?))
            })
        })
    }
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
        let dialling = (self.0)(uri.authority().map_or_else(String::new, ToString::to_string));
        Box::pin(async move { Ok(TokioIo::new(dialling.await?)) })
    }
}

/// A stream of accepted connections.
pub type Incoming = Pin<Box<dyn futures_util::Stream<Item = io::Result<Connection>> + Send>>;

/// Returns the connections from other nodes that a TCP listener accepts, see [`arrivals`].
pub fn accepted(listener: TcpListener) -> Incoming {
    Box::pin(arrivals(listener, Port::Peer).map(|stream| Ok(Connection::new(stream))))
}
