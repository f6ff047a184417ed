//! The loop that accepts the connections of a port, and what happens while it cannot accept.
//!
//! A process without a free file descriptor can neither accept nor refuse a connection: it stays in the kernel's queue,
//! and a loop that only retries uses a whole processor. A node needs descriptors for its own files, so connections do
//! not get all of them.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{Stream, unfold};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant as TokioInstant, sleep};

use super::connection_count::ConnectionCount;
use super::descriptor_share::{Descriptor, warn_if_few};
use super::first_request::Admission;
use super::port::{ConnectionsMax, Port};
use crate::limits::{ACCEPT_PAUSE_MS, ACCEPT_QUIET_MS, HTTP_KEEPALIVE_MS, HTTP_SILENCE_MS_MAX};

/// Returns the TCP connections of a port, see [`connections`](super::connections).
pub(super) fn arrivals(
    listener: TcpListener,
    port: Port,
    most: ConnectionsMax,
) -> impl Stream<Item = (TcpStream, Admission)> + Send + 'static {
    let limits = port.limits(most);
    warn_if_few(port, limits.open);
    let late = port.counter(
        "lockkeeper_silent_connections_closed_total",
        "Connections that were closed because their peers began no request in time",
    );
    let (listener, count) = (Arc::new(listener), ConnectionCount::new(port, limits));
    let accept = move || {
        let listener = Arc::clone(&listener);
        async move {
            // The last connection reads its first request, if that has arrived, before it counts as unproven here. When
            // a node resumes, the newest of many waiting connections are those that others still use.
            yield_now().await;
            let descriptor = Descriptor::take(port)?;
            let (stream, peer) = listener.accept().await?;
            Ok((stream, peer.ip(), descriptor))
        }
    };
    accepting(accept, port).filter_map(move |(stream, address, descriptor)| {
        let accepted = count.admit(address).map(|counted| {
            // This fails if the peer is gone by now, which the first read reports.
            stream.set_nodelay(true).ok();
            if port == Port::Http {
                silence_is_bounded(&stream).ok();
            }
            (stream, Admission::new(port, counted, descriptor, late.clone()))
        });
        ready(accepted)
    })
}

/// Lets the kernel close a connection whose peer acknowledges nothing, or takes nothing. HTTP/1 has no pings.
fn silence_is_bounded(stream: &TcpStream) -> io::Result<()> {
    let idle = Duration::from_millis(HTTP_KEEPALIVE_MS);
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, idle)?;
    set_tcp_keepintvl(stream, idle)?;
    Ok(set_tcp_user_timeout(stream, HTTP_SILENCE_MS_MAX)?)
}

/// Calls `accept` repeatedly and returns its results. Errors of a single connection are skipped. After any other error
/// it pauses, and logs one line for the whole outage.
fn accepting<T, F, A>(accept: F, port: Port) -> impl Stream<Item = T>
where
    F: Fn() -> A,
    A: Future<Output = io::Result<T>>,
{
    let failures = port.counter(
        "lockkeeper_accept_failures_total",
        "How often a port could not accept a connection, usually for want of descriptors",
    );
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
                let port = port.name();
                tracing::warn!(port, %error, "cannot accept connections; retrying every {ACCEPT_PAUSE_MS} ms");
            }
            failed = Some(now);
            sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use tokio::io::AsyncReadExt;
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
        let mut accepted = pin!(accepting(accept, Port::Client));
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

    /// Two nodes of one process limit their connections by their own configurations.
    #[tokio::test]
    async fn each_node_has_its_own_limits() {
        let few = ConnectionsMax { http: 1, ..ConnectionsMax::default() };
        for (most, open) in [(few, 1), (ConnectionsMax::default(), 2)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let mut arrivals = Box::pin(arrivals(listener, Port::Http, most));
            let _first = TcpStream::connect(address).await.expect("connected");
            let mut accepted = vec![arrivals.next().await.expect("a connection")];
            let mut second = TcpStream::connect(address).await.expect("connected");
            tokio::select! {
                Some(next) = arrivals.next() => accepted.push(next),
                ended = second.read_u8() => assert!(ended.is_err(), "it gets nothing"),
            }
            assert_eq!(accepted.len(), open);
        }
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
        let mut accepted = pin!(accepting(accept, Port::Client));
        let begun = TokioInstant::now();
        assert_eq!(accepted.next().await, Some(1));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
