//! The simulated network below the product's own connector and acceptor.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lockkeeper::net::{Connection, Connector, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

use crate::clients::CLIENT_HOSTS;
use crate::run::{NODE_HOSTS, Run};

/// Where clients reach a node.
pub(crate) const CLIENT_PORT: u16 = 7_000;
/// Where the other nodes reach it.
pub(crate) const PEER_PORT: u16 = 7_001;

/// Dials hosts of the simulation by name, from the host `from`.
pub(crate) fn connector(run: Arc<Run>, from: &'static str) -> Connector {
    Connector::new(move |address| {
        let run = Arc::clone(&run);
        Box::pin(async move {
            let to = address.split(':').next().and_then(known);
            run.sent(from, to);
            let stream = TcpStream::connect(address).await?;
            Ok(Connection::new(Traced { stream, run, host: from, other: to, port: None }))
        })
    })
}

/// The host of that name.
fn known(name: &str) -> Option<&'static str> {
    NODE_HOSTS.iter().chain(&CLIENT_HOSTS).find(|host| **host == name).copied()
}

/// Accepts on a port of the present host; every arrival there stands in the trace.
pub(crate) async fn incoming(run: Arc<Run>, host: &'static str, port: u16) -> io::Result<Incoming> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    Ok(Box::pin(futures_util::stream::unfold((listener, run), move |(listener, run)| async move {
        let accepted = listener.accept().await.map(|(stream, peer)| {
            let other = turmoil::reverse_lookup(peer.ip()).as_deref().and_then(known);
            Connection::new(Traced { stream, run: Arc::clone(&run), host, other, port: Some(port) })
        });
        Some((accepted, (listener, run)))
    })))
}

/// A connection whose arrivals are written down. Their sizes are not: the date in HTTP's headers is the machine's own.
struct Traced {
    stream: TcpStream,
    run: Arc<Run>,
    host: &'static str,
    /// Who is at the other end.
    other: Option<&'static str>,
    /// Where it was accepted; `None` where it was dialled.
    port: Option<u16>,
}

impl AsyncRead for Traced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(port) = self.port.filter(|_| read.is_ready()) {
            self.run.trace(self.host, || format!("arrival at {port}"));
            let node = NODE_HOSTS.iter().position(|host| *host == self.host);
            if let Some(node) = node.filter(|_| port == CLIENT_PORT) {
                self.run.notes().arrivals[node] += 1;
            }
        }
        read
    }
}

impl AsyncWrite for Traced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.run.sent(self.host, self.other);
        }
        written
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
