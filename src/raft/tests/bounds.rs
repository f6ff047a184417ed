//! The limits of one connection of the peer port.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};

use super::super::consensus::bounded_transport;
use crate::limits;
use crate::net::Connection;

/// Types of HTTP/2 frames.
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// Reads one frame: its type and its payload. Returns `None` at the end of the connection.
async fn frame(stream: &mut DuplexStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
    stream.read_exact(&mut payload).await.ok()?;
    Some((header[3], payload))
}

/// H-11: the peer port limits the streams, windows and headers of a connection, and ends a connection that does not
/// answer its pings.
#[tokio::test(start_paused = true)]
async fn peer_port_is_bounded() {
    let (mut peer, server) = tokio::io::duplex(1 << 16);
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = futures_util::stream::iter([Ok::<_, std::io::Error>(Connection::new(server))]);
    let incoming = futures_util::StreamExt::chain(incoming, futures_util::stream::pending());
    tokio::spawn(bounded_transport().add_service(health).serve_with_incoming(incoming));
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("sent");
    let begun = Instant::now();
    let (mut settings, mut window, mut pings) = (BTreeMap::new(), 65_535, 0);
    let longest = Duration::from_millis(2 * (limits::KEEPALIVE_MS + limits::KEEPALIVE_WAIT_MS));
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
    while let Some((kind, payload)) = timeout(longest, frame(&mut peer)).await.expect("it ends in time") {
        match kind {
            SETTINGS => settings.extend(payload.chunks_exact(6).map(|pair| (pair[1], word(&pair[2..])))),
            WINDOW_UPDATE => window += word(&payload),
            PING => pings += 1,
            _ => {}
        }
    }
    let ends = Duration::from_millis(limits::KEEPALIVE_MS + limits::KEEPALIVE_WAIT_MS);
    assert_eq!((pings, begun.elapsed().as_secs()), (1, ends.as_secs()));
    let (streams, stream_window, headers) = (settings.get(&3), settings.get(&4), settings.get(&6));
    assert_eq!(streams, Some(&limits::PEER_STREAMS_A_CONNECTION_MAX));
    assert_eq!(stream_window, Some(&limits::PEER_STREAM_WINDOW_BYTES));
    assert_eq!(headers, Some(&limits::PEER_HEADER_LIST_BYTES_MAX));
    assert_eq!(window, limits::PEER_CONNECTION_WINDOW_BYTES);
}
