//! The simulated network for the product's own connector and acceptor.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lockkeeper::net::{Connection, Connector, Incoming, Target};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant as TokioInstant, Sleep, sleep};
use turmoil::net::{TcpListener, TcpStream};

use crate::clients::CLIENT_HOSTS;
use crate::clock::truth;
use crate::run::{NODE_HOSTS, Run};

/// Port of a node for clients.
pub(crate) const CLIENT_PORT: u16 = 7_000;
/// Port of a node for the other nodes.
pub(crate) const PEER_PORT: u16 = 7_001;

/// Connects from the host `from` to hosts of the simulation by their names.
pub(crate) fn connector(run: Arc<Run>, from: &'static str) -> Connector {
    Connector::new(move |Target { address, .. }| {
        let run = Arc::clone(&run);
        Box::pin(async move {
            let to = address.split(':').next().and_then(known);
            run.sent(from, to);
            if to.is_some_and(|to| run.notes().refuses(from, to)) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let stream = TcpStream::connect(address).await?;
            Ok(Connection::new(Traced::new(stream, run, (from, to), None)))
        })
    })
}

/// The host with that name.
fn known(name: &str) -> Option<&'static str> {
    NODE_HOSTS.iter().chain(&CLIENT_HOSTS).find(|host| **host == name).copied()
}

/// Accepts connections on a port of the current host, and records every arrival in the trace.
pub(crate) async fn incoming(run: Arc<Run>, host: &'static str, port: u16) -> io::Result<Incoming> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    Ok(Box::pin(futures_util::stream::unfold((listener, run), move |(listener, run)| async move {
        let accepted = listener.accept().await.map(|(stream, peer)| {
            let other = turmoil::reverse_lookup(peer.ip()).as_deref().and_then(known);
            Connection::new(Traced::new(stream, Arc::clone(&run), (host, other), Some(port)))
        });
        Some((accepted, (listener, run)))
    })))
}

/// A connection whose arrivals are recorded. Their sizes are not recorded, because the real date in HTTP headers
/// affects them.
struct Traced {
    stream: TcpStream,
    run: Arc<Run>,
    host: &'static str,
    /// The host at the other end.
    other: Option<&'static str>,
    /// The port that accepted the connection; `None` if this end opened it.
    port: Option<u16>,
    late: Late,
    /// Completes when the connection is to break at this end; `None` after it has.
    broken: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Data that has arrived and will be read later, in order, including the end of the connection.
struct Late {
    waiting: VecDeque<(Duration, io::Result<Vec<u8>>)>,
    pause: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl Traced {
    fn new(
        stream: TcpStream,
        run: Arc<Run>,
        (host, other): (&'static str, Option<&'static str>),
        port: Option<u16>,
    ) -> Self {
        let late = Late { waiting: VecDeque::new(), pause: None, ended: false };
        let breaks = Arc::clone(&run);
        // Without a reset, this must not change a run, so it uses neither a random choice nor the scheduling budget of
        // tokio.
        let broken = tokio::task::unconstrained(async move {
            loop {
                let news = breaks.resets.notified();
                if port.is_some() && other.is_some() && breaks.notes().reset == other {
                    return;
                }
                news.await;
            }
        });
        Self { stream, run, host, other, port, late, broken: Some(Box::pin(broken)) }
    }

    /// Reads what has arrived, with the delay of this direction.
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.broken.as_mut().is_some_and(|broken| broken.as_mut().poll(cx).is_ready()) {
            self.broken = None;
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let by = self.other.and_then(|other| self.run.notes().late.get(&(other, self.host)).copied());
        if by.is_none() && self.late.waiting.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        self.let_wait(cx, by.unwrap_or_default());
        let Some((due, _)) = self.late.waiting.front() else { return Poll::Pending };
        let left = due.saturating_sub(truth());
        if !left.is_zero() {
            let pause = self.late.pause.get_or_insert_with(|| Box::pin(sleep(left)));
            pause.as_mut().reset(TokioInstant::now() + left);
            ready!(pause.as_mut().poll(cx));
        }
        let Some((due, arrived)) = self.late.waiting.pop_front() else { return Poll::Pending };
        let mut bytes = arrived?;
        let rest = bytes.split_off(bytes.len().min(buf.remaining()));
        buf.put_slice(&bytes);
        if !rest.is_empty() {
            self.late.waiting.push_front((due, Ok(rest)));
        }
        Poll::Ready(Ok(()))
    }

    /// Moves everything that has arrived to the delayed data.
    fn let_wait(&mut self, cx: &mut Context<'_>, by: Duration) {
        while !self.late.ended {
            let mut bytes = [0; 4_096];
            let mut read = ReadBuf::new(&mut bytes);
            let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, &mut read) else { return };
            let before = self.late.waiting.back().map_or(Duration::ZERO, |(due, _)| *due);
            self.late.ended = result.is_err() || read.filled().is_empty();
            let arrived = result.map(|()| read.filled().to_vec());
            self.late.waiting.push_back((before.max(truth() + by), arrived));
            self.run.notes().late_arrivals += 1;
        }
    }
}

impl AsyncRead for Traced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.read(cx, buf);
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
