//! Connections that wait while one of their nodes is partitioned, that are reset, or that are refused, and that count
//! the bytes that are sent.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The faults of the links, and the number of bytes that all nodes have sent. Clones share them.
#[derive(Clone)]
pub(super) struct Lossy {
    /// The partitioned node.
    cut: watch::Sender<Option<u64>>,
    /// The link, as the nodes at its two ends, on which connections are refused.
    refused: watch::Sender<Option<(u64, u64)>>,
    /// How often all connections were reset.
    resets: watch::Sender<u64>,
    /// Number of dials of each link, and of those that wait because the node that they dial is partitioned.
    dials: Arc<Mutex<BTreeMap<(u64, u64), u64>>>,
    hanging: watch::Sender<u64>,
    bytes: Arc<AtomicU64>,
}

impl Default for Lossy {
    fn default() -> Self {
        Self {
            cut: watch::Sender::new(None),
            refused: watch::Sender::new(None),
            resets: watch::Sender::new(0),
            dials: Arc::default(),
            hanging: watch::Sender::new(0),
            bytes: Arc::default(),
        }
    }
}

/// A dial that waits.
struct Hanging<'a>(&'a watch::Sender<u64>);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|hanging| *hanging -= 1);
    }
}

impl Lossy {
    /// Partitions this node, or restores all links.
    pub(super) fn cut(&self, node: Option<u64>) {
        self.cut.send_replace(node);
    }

    /// Refuses connections from the first node to the second one, or none.
    pub(super) fn refuse(&self, link: Option<(u64, u64)>) {
        self.refused.send_replace(link);
    }

    /// Resets all connections.
    pub(super) fn reset(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Number of dials from the first node to the second one.
    pub(super) fn dials(&self, from: u64, to: u64) -> u64 {
        self.dials.lock().unwrap().get(&(from, to)).copied().unwrap_or_default()
    }

    /// Watches the number of dials to a partitioned node, which wait.
    pub(super) fn hanging(&self) -> watch::Receiver<u64> {
        self.hanging.subscribe()
    }

    /// Dials: waits while the link is cut, and fails if connections on it are refused.
    pub(super) async fn dial(&self, from: u64, to: u64, address: String) -> io::Result<Link> {
        *self.dials.lock().unwrap().entry((from, to)).or_default() += 1;
        if *self.refused.borrow() == Some((from, to)) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let mut cut = self.cut.subscribe();
        let partitioned = *cut.borrow();
        let _hanging = (partitioned == Some(to)).then(|| {
            self.hanging.send_modify(|hanging| *hanging += 1);
            Hanging(&self.hanging)
        });
        cut.wait_for(|cut| !concerns(*cut, from, to)).await.expect("the sender exists");
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let reset = self.resets.subscribe();
        Ok(Link { lossy: self.clone(), reset: Box::pin(was_reset(reset)), restored: None, stream, from, to })
    }

    /// Bytes that nodes have sent to each other, without the answers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn was_reset(mut resets: watch::Receiver<u64>) {
    resets.borrow_and_update();
    resets.changed().await.expect("the sender exists");
}

fn concerns(cut: Option<u64>, from: u64, to: u64) -> bool {
    cut.is_some_and(|node| node == from || node == to)
}

/// A stream that waits while its link is cut, as TCP does, and that ends when it is reset.
pub(super) struct Link {
    lossy: Lossy,
    reset: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Completes when the link is restored.
    restored: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    stream: TcpStream,
    from: u64,
    to: u64,
}

impl Link {
    /// Whether the link is cut. If it is, the task is woken when the link is restored.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        let (from, to, mut cut) = (self.from, self.to, self.lossy.cut.subscribe());
        if !concerns(*cut.borrow(), from, to) {
            self.restored = None;
            return false;
        }
        // Readers and writers of a stream are in the same task.
        let mut restored = Box::pin(async move {
            cut.wait_for(|cut| !concerns(*cut, from, to)).await.expect("the sender exists");
        });
        let waits = restored.as_mut().poll(cx).is_pending();
        self.restored = Some(restored);
        waits
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.reset.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.is_cut(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_cut(cx) {
            return Poll::Pending;
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
