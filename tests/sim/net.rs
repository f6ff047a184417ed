//! The simulated network below the product's own connector and acceptor.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lockkeeper::net::{Connection, Connector, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

use crate::run::{NODE_HOSTS, Run};

/// Where clients reach a node.
pub(crate) const CLIENT_PORT: u16 = 7_000;
/// Where the other nodes reach it.
pub(crate) const PEER_PORT: u16 = 7_001;

/// Dials hosts of the simulation by name.
pub(crate) fn connector() -> Connector {
    Connector::new(|address| Box::pin(async move { Ok(Connection::new(TcpStream::connect(address).await?)) }))
}

/// Accepts on a port of the present host; every arrival there stands in the trace.
pub(crate) async fn incoming(run: Arc<Run>, host: &'static str, port: u16) -> io::Result<Incoming> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    Ok(Box::pin(futures_util::stream::unfold((listener, run), move |(listener, run)| async move {
        let accepted = listener
            .accept()
            .await
            .map(|(stream, _)| Connection::new(Traced { stream, run: Arc::clone(&run), host, port }));
        Some((accepted, (listener, run)))
    })))
}

/// A connection whose arrivals are written down. Their sizes are not: the date in HTTP's headers is the machine's own.
struct Traced {
    stream: TcpStream,
    run: Arc<Run>,
    host: &'static str,
    port: u16,
}

impl AsyncRead for Traced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.run.trace(self.host, || format!("arrival at {}", self.port));
            if let Some(node) =
                NODE_HOSTS.iter().position(|host| *host == self.host).filter(|_| self.port == CLIENT_PORT)
            {
                self.run.notes().arrivals[node] += 1;
            }
        }
        read
    }
}

impl AsyncWrite for Traced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
