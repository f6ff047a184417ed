//! Accepted connections: what happens while a listener cannot accept, and how long a new connection may be silent.
//!
//! A process without a free file descriptor can neither accept nor refuse a connection: it stays in the kernel's queue,
//! and a loop that only retries uses a whole processor. A peer that connects and sends nothing occupies a descriptor,
//! so it has a limited time to send its first bytes. A node needs descriptors for its own files, so clients do not get
//! all of them.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{Stream, unfold};
use metrics::Counter;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant as TokioInstant, Sleep, sleep};
use tonic::transport::server::Connected;

use crate::limits::{ACCEPT_PAUSE_MS, ACCEPT_QUIET_MS, DESCRIPTORS_RESERVED_MAX, FIRST_BYTES_MS_MAX};

/// A port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Port for clients.
    Client,
    /// Port for the other nodes.
    Peer,
    /// Port for health checks and metrics.
    Http,
}

/// Open connections of each kind of port in this process. It may run several nodes, which share its descriptors.
static OPEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

impl Port {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
            Self::Http => "http",
        }
    }

    /// Returns the most connections that this port may have in a process with this limit of file descriptors. Other
    /// nodes may use all of them: they are few, and without them there is no service.
    fn most(self, descriptors: u64) -> u64 {
        let reserved = (descriptors / 4).min(DESCRIPTORS_RESERVED_MAX);
        match self {
            Self::Client => descriptors - reserved,
            Self::Peer => descriptors,
            Self::Http => reserved / 4,
        }
    }
}

/// One of the connections that a port may have. Dropping it makes space for another one.
#[derive(Debug)]
struct Place(Port);

impl Place {
    fn take(port: Port) -> io::Result<Self> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let open = OPEN[port as usize].fetch_add(1, Ordering::Relaxed);
        let place = Self(port);
        if port.most(descriptors) <= open {
            return Err(io::Error::other(format!("{open} are open, of {descriptors} descriptors")));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        OPEN[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the connections of a TCP listener, without delay for small messages.
///
/// The stream runs until it is dropped. While the listener fails, or the port has all the connections that it may have,
/// it pauses and retries.
pub fn arrivals(listener: TcpListener, port: Port) -> impl Stream<Item = Greeted<TcpStream>> + Send + 'static {
    let silent = silent_connections(port.name());
    let listener = Arc::new(listener);
    let accept = move || {
        let listener = Arc::clone(&listener);
        async move {
            let place = Place::take(port)?;
            let (stream, _) = listener.accept().await?;
            // This fails if the peer is gone by now, which the first read reports.
            stream.set_nodelay(true).ok();
            Ok((stream, place))
        }
    };
    accepting(accept, port.name()).map(move |(stream, place)| Greeted::new(stream, place, silent.clone()))
}

/// Calls `accept` repeatedly and returns its results. Errors of a single connection are skipped. After any other error
/// it pauses, and logs one line for the whole outage.
fn accepting<T, F, A>(accept: F, port: &'static str) -> impl Stream<Item = T>
where
    F: Fn() -> A,
    A: Future<Output = io::Result<T>>,
{
    let failures = accept_failures(port);
    unfold((accept, failures, None::<TokioInstant>), move |(accept, failures, mut failed)| async move {
        loop {
            let error = match accept().await {
                Ok(accepted) => return Some((accepted, (accept, failures, failed))),
                Err(error) => error,
            };
            if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                continue;
            }
            failures.increment(1);
            let now = TokioInstant::now();
            if failed.is_none_or(|before| Duration::from_millis(ACCEPT_QUIET_MS) <= now - before) {
                tracing::warn!(port, %error, "cannot accept connections; retrying every {ACCEPT_PAUSE_MS} ms");
            }
            failed = Some(now);
            sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
        }
    })
}

fn accept_failures(port: &'static str) -> Counter {
    let name = "lockkeeper_accept_failures_total";
    metrics::describe_counter!(name, "How often a port could not accept a connection, usually for want of descriptors");
    metrics::counter!(name, "port" => port)
}

fn silent_connections(port: &'static str) -> Counter {
    let name = "lockkeeper_silent_connections_closed_total";
    metrics::describe_counter!(name, "Connections that were closed because their peers sent nothing in time");
    metrics::counter!(name, "port" => port)
}

/// A connection whose peer must send something soon after it was accepted; later it has no deadline.
#[derive(Debug)]
pub struct Greeted<S> {
    stream: S,
    /// Deadline for the first bytes; `None` once they have arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    silent: Counter,
    _place: Place,
}

impl<S> Greeted<S> {
    fn new(stream: S, place: Place, silent: Counter) -> Self {
        let deadline = Some(Box::pin(sleep(Duration::from_millis(FIRST_BYTES_MS_MAX))));
        Self { stream, deadline, silent, _place: place }
    }
}

impl<S: Connected> Connected for Greeted<S> {
    type ConnectInfo = S::ConnectInfo;
    fn connect_info(&self) -> S::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some(deadline) = &mut self.deadline else { return read };
        if read.is_pending() {
            ready!(deadline.as_mut().poll(cx));
            self.silent.increment(1);
            let silent = Err(io::Error::new(io::ErrorKind::TimedOut, "the peer sent nothing"));
            return Poll::Ready(silent);
        }
        self.deadline = None;
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    const EMFILE: i32 = 24;

    /// Counts the log lines of the thread.
    #[derive(Default)]
    struct Lines(AtomicU64);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, SeqCst);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// While the process has no free descriptor, a port retries once in each pause, logs that once, and accepts again
    /// as soon as a descriptor is free. A failure after a quiet time is logged again.
    #[tokio::test(start_paused = true)]
    async fn a_port_without_descriptors_pauses_and_recovers() {
        let lines = Arc::new(Lines::default());
        let _log = tracing::subscriber::set_default(Arc::clone(&lines));
        let (tries, full) = (AtomicU64::new(0), AtomicBool::new(true));
        let accept = || async {
            assert!(tries.fetch_add(1, SeqCst) < 1_000, "it retries without a pause");
            if full.load(SeqCst) { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
        };
        let mut accepted = pin!(accepting(accept, "test"));
        let pauses = 50;
        let outage = Duration::from_millis(pauses * ACCEPT_PAUSE_MS);
        assert!(timeout(outage, accepted.next()).await.is_err(), "accepted without a descriptor");
        let made = tries.load(SeqCst);
        assert!((2..=pauses + 1).contains(&made), "{made} tries in {pauses} pauses");
        assert_eq!(lines.0.load(SeqCst), 1, "one line for one outage");
        full.store(false, SeqCst);
        assert_eq!(accepted.next().await, Some(()));
        assert_eq!(tries.load(SeqCst), made + 1, "at the next try");
        sleep(Duration::from_millis(ACCEPT_QUIET_MS)).await;
        full.store(true, SeqCst);
        assert!(timeout(outage, accepted.next()).await.is_err());
        assert_eq!(lines.0.load(SeqCst), 2, "one more for the next outage");
    }

    /// Clients leave descriptors for a node's files, for the other nodes and for health checks, with the usual limits
    /// and with small ones.
    #[test]
    fn clients_do_not_get_all_descriptors() {
        assert_eq!([1_024, 256].map(|limit| Port::Client.most(limit)), [768, 192]);
        assert_eq!([1_024, 256].map(|limit| Port::Http.most(limit)), [64, 16]);
        assert_eq!(Port::Client.most(u64::MAX), u64::MAX - DESCRIPTORS_RESERVED_MAX);
    }

    /// A connection that was closed before it could be accepted causes no pause.
    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_is_skipped() {
        let tries = AtomicU64::new(0);
        let accept = || async {
            match tries.fetch_add(1, SeqCst) {
                0 => Err(io::ErrorKind::ConnectionAborted.into()),
                next => Ok(next),
            }
        };
        let mut accepted = pin!(accepting(accept, "test"));
        let begun = TokioInstant::now();
        assert_eq!(accepted.next().await, Some(1));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    fn place() -> Place {
        Place::take(Port::Peer).expect("a free place")
    }

    /// A peer that sends nothing is disconnected at the deadline. A peer that has sent something may be silent without
    /// limit.
    #[tokio::test(start_paused = true)]
    async fn a_peer_has_to_send_its_first_bytes_in_time() {
        let (_peer, silent) = tokio::io::duplex(64);
        let begun = TokioInstant::now();
        let mut silent = Greeted::new(silent, place(), Counter::noop());
        let longest = Duration::from_millis(3 * FIRST_BYTES_MS_MAX);
        let error = timeout(longest, silent.read_u8()).await.expect("closed in time").expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_millis() as u64 / 1_000, FIRST_BYTES_MS_MAX / 1_000);

        let (mut peer, stream) = tokio::io::duplex(64);
        let mut stream = Greeted::new(stream, place(), Counter::noop());
        peer.write_u8(1).await.expect("sent");
        assert_eq!(stream.read_u8().await.expect("the first byte"), 1);
        assert!(timeout(longest, stream.read_u8()).await.is_err(), "it is closed although it has sent a byte");
        peer.write_u8(2).await.expect("sent");
        assert_eq!(stream.read_u8().await.expect("the second byte"), 2);
    }

    /// The port for other nodes closes a silent connection.
    #[tokio::test(start_paused = true)]
    async fn the_peer_port_closes_silent_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut accepted = crate::net::accepted(listener);
        let _silent = TcpStream::connect(address).await.expect("connected");
        let mut connection = accepted.next().await.expect("a connection").expect("accepted");
        let longest = Duration::from_millis(2 * FIRST_BYTES_MS_MAX);
        let read = timeout(longest, connection.read_u8()).await.expect("closed in time");
        assert_eq!(read.expect_err("nothing was sent").kind(), io::ErrorKind::TimedOut);
    }
}
