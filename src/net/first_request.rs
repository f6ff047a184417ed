//! The first request of an accepted connection: it must begin in time. A peer that connects and sends nothing, or only
//! a part of a header, occupies a descriptor.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use metrics::Counter;
use tokio::time::{Sleep, sleep};

use super::connection_count::Counted;
use super::descriptor_share::Descriptor;
use super::port::Port;

/// Bytes with which an HTTP/2 connection begins: the preface of 24 bytes, and the header of the first frame. From then
/// on, keepalive pings detect a silent peer.
const HTTP2_BEGIN_BYTES: usize = 24 + 9;

/// The place of a connection among those of its port, and the deadline of its first request.
#[derive(Debug)]
pub(super) struct Admission {
    /// What is missing of the first request; `None` once it has begun.
    awaited: Option<Awaited>,
    counted: Counted,
    _descriptor: Descriptor,
}

impl Admission {
    pub(super) fn new(port: Port, counted: Counted, descriptor: Descriptor, late: Counter) -> Self {
        let deadline = Box::pin(sleep(port.patience()));
        let awaited = Some(Awaited { beginning: Beginning::of(port), deadline, late });
        Self { awaited, counted, _descriptor: descriptor }
    }

    /// Completes at the deadline of the first request, and counts the connection as late.
    pub(super) async fn late(&mut self) {
        match &mut self.awaited {
            Some(awaited) => {
                awaited.deadline.as_mut().await;
                awaited.late.increment(1);
            }
            None => std::future::pending().await,
        }
    }

    /// Follows the first request in the bytes of a read, and returns the result of the read; an error at the deadline
    /// of a request that has not begun.
    pub(super) fn follow(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        read: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        let Some(awaited) = &mut self.awaited else { return read };
        if awaited.beginning.is_complete_after(bytes) {
            self.awaited = None;
            self.counted.prove();
        } else if read.is_pending() {
            ready!(awaited.deadline.as_mut().poll(cx));
            awaited.late.increment(1);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer began no request in time")));
        }
        read
    }
}

#[derive(Debug)]
struct Awaited {
    beginning: Beginning,
    deadline: Pin<Box<Sleep>>,
    late: Counter,
}

/// How much of a connection's first request has arrived.
#[derive(Debug)]
enum Beginning {
    /// The number of bytes that are missing.
    Http2(usize),
    /// The place in the header, which an empty line ends.
    Http1(HeaderPlace),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderPlace {
    BeforeText,
    InLine,
    AtLineStart,
    End,
}

impl HeaderPlace {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::End, _) | (Self::AtLineStart, b'\n') => Self::End,
            (Self::InLine, b'\n') => Self::AtLineStart,
            (_, b'\r' | b'\n') => self,
            (Self::BeforeText | Self::InLine | Self::AtLineStart, _) => Self::InLine,
        }
    }
}

impl Beginning {
    fn of(port: Port) -> Self {
        match port {
            Port::Client | Port::Peer => Self::Http2(HTTP2_BEGIN_BYTES),
            Port::Http => Self::Http1(HeaderPlace::BeforeText),
        }
    }

    /// Adds the next bytes. Returns whether the request has begun.
    fn is_complete_after(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Http2(missing) => {
                *missing = missing.saturating_sub(bytes.len());
                *missing == 0
            }
            Self::Http1(place) => {
                *place = bytes.iter().fold(*place, |place, byte| place.after(*byte));
                *place == HeaderPlace::End
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant as TokioInstant, timeout};

    use super::*;
    use crate::net::{Connection, ConnectionInfo, ConnectionsMax, connections};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const HEADER: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";

    fn accepted(stream: DuplexStream, port: Port) -> Connection {
        let counted = crate::net::connection_count::ConnectionCount::new(port, port.limits(ConnectionsMax::default()))
            .admit(std::net::Ipv4Addr::LOCALHOST.into())
            .expect("the first");
        let descriptor = Descriptor::take(port).expect("a descriptor");
        let admission = Admission::new(port, counted, descriptor, Counter::noop());
        Connection::accepted(stream, admission, ConnectionInfo::new(None, false, None))
    }

    /// H-10: each port closes a connection on which nothing arrives, or only a part of the preface or of a header, at
    /// its deadline, no matter how the bytes are split. A connection whose first request has begun may be silent.
    #[tokio::test(start_paused = true)]
    async fn silence_is_cut() {
        for (port, whole) in [(Port::Client, PREFACE), (Port::Peer, PREFACE), (Port::Http, HEADER)] {
            for sent in 0..=whole.len() {
                let (mut peer, stream) = tokio::io::duplex(whole.len());
                let mut stream = accepted(stream, port);
                let begun = TokioInstant::now();
                let drip = async {
                    for byte in &whole[..sent] {
                        peer.write_u8(*byte).await.expect("sent");
                        tokio::task::yield_now().await;
                    }
                };
                let mut read = Vec::new();
                let longest = 10 * port.patience();
                let (ended, ()) = tokio::join!(timeout(longest, stream.read_to_end(&mut read)), drip);
                assert_eq!(read, &whole[..sent]);
                if sent == whole.len() {
                    assert!(ended.is_err(), "{port:?}: closed although the request has begun");
                    continue;
                }
                let error = ended.expect("closed in time").expect_err("not all was sent");
                assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{port:?} after {sent} bytes");
                assert_eq!(begun.elapsed().as_millis() / 10, port.patience().as_millis() / 10, "{port:?}");
            }
        }
    }

    /// Empty lines before a header do not count as its end.
    #[test]
    fn a_header_has_text() {
        let is_whole = |bytes: &[u8]| Beginning::of(Port::Http).is_complete_after(bytes);
        assert!(!is_whole(b"\r\n\r\n\n\n"));
        assert!(is_whole(b"\r\nGET / HTTP/1.0\n\n") && is_whole(HEADER));
        assert!(!is_whole(b"GET / HTTP/1.1\r\nhost: a\r\n\r"));
    }

    /// The connections of all listeners have the deadline, and one that has begun its request is no longer counted as
    /// unproven.
    #[tokio::test(start_paused = true)]
    async fn each_listener_has_the_deadline() {
        for port in [Port::Client, Port::Peer, Port::Http] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let mut accepted = connections(listener, port, ConnectionsMax::default(), None);
            let _silent = TcpStream::connect(address).await.expect("connected");
            let mut connection = accepted.next().await.expect("a connection");
            let read = timeout(2 * port.patience(), connection.read_u8()).await.expect("closed in time");
            assert_eq!(read.expect_err("nothing was sent").kind(), io::ErrorKind::TimedOut);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut accepted = crate::net::accepted(listener, None);
        let _silent = TcpStream::connect(address).await.expect("connected");
        let mut connection = accepted.next().await.expect("a connection").expect("accepted");
        let read = timeout(2 * Port::Peer.patience(), connection.read_u8()).await.expect("closed in time");
        assert_eq!(read.expect_err("nothing was sent").kind(), io::ErrorKind::TimedOut);
    }
}
