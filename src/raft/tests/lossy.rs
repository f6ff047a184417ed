//! Connections that lose everything to and from one node while it is partitioned, and count the bytes that are sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The partitioned node, and the number of bytes that all nodes have sent. Clones share them.
#[derive(Clone)]
pub(super) struct Lossy {
    cut: watch::Sender<Option<u64>>,
    bytes: Arc<AtomicU64>,
}

impl Default for Lossy {
    fn default() -> Self {
        Self { cut: watch::Sender::new(None), bytes: Arc::default() }
    }
}

impl Lossy {
    /// Partitions this node, or restores all links.
    pub(super) fn cut(&self, node: Option<u64>) {
        self.cut.send_replace(node);
    }

    /// Waits until the link between these two nodes works.
    pub(super) async fn not_cut(&self, from: u64, to: u64) {
        let mut cut = self.cut.subscribe();
        cut.wait_for(|cut| !concerns(*cut, from, to)).await.expect("the sender exists");
    }

    /// Bytes that nodes have sent to each other, without the answers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Wraps the stream of this link.
    pub(super) fn around(&self, stream: TcpStream, from: u64, to: u64) -> Link {
        Link { lossy: self.clone(), stream, from, to }
    }
}

fn concerns(cut: Option<u64>, from: u64, to: u64) -> bool {
    cut.is_some_and(|node| node == from || node == to)
}

/// A stream that, while its link is cut, drops what is written and what arrives.
pub(super) struct Link {
    lossy: Lossy,
    stream: TcpStream,
    from: u64,
    to: u64,
}

impl Link {
    fn is_cut(&self) -> bool {
        concerns(*self.lossy.cut.borrow(), self.from, self.to)
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            let read = Pin::new(&mut self.stream).poll_read(cx, buf);
            let came = buf.filled().len() > before;
            if !(self.is_cut() && came && read.is_ready()) {
                return read;
            }
            buf.set_filled(before);
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_cut() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = written {
            self.lossy.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
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
