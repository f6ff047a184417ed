//! Coalesces the writes of one connection: messages that are ready at the same time leave in one system call.
//!
//! The answers of one log entry, or renewals that are due at the same time, become ready at once, each in its own task.
//! The task of their connection would run right behind the first of these tasks and write. So each message would leave
//! in its own packet and system call, which would cost more than the rest of its work. A connection of this module
//! first yields to all tasks that are ready to run, and then writes the messages of all of them.
//!
//! A connection never waits for a timer. A single message costs one pass of the scheduler. A series of single messages
//! soon costs few passes: each time that no other message joins, twice as many of the next messages are written without
//! a yield.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::codegen::{Service, http::Uri};
use tonic::transport::server::Connected;

use crate::limits::LONE_WRITES_MAX;

/// A connection that yields to other tasks before it writes.
#[derive(Debug)]
pub struct CoalescedWrites<S> {
    stream: S,
    state: WriteState,
    /// Number of messages that may still be written without a yield.
    left_at_once: u32,
    /// Number of messages that could be written without a yield after the last write that no other message joined; 0
    /// after a write that others joined.
    lone_writes: u32,
}

/// State of the current message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    /// No message is being written.
    Idle,
    /// The task has yielded once, with this many bytes to write.
    Yielded(usize),
    /// The message is being written, until it is flushed.
    Writing,
}

impl<S> CoalescedWrites<S> {
    /// Creates a connection over a stream of bytes.
    pub fn new(stream: S) -> Self {
        Self { stream, state: WriteState::Idle, left_at_once: 0, lone_writes: 0 }
    }

    /// Whether `bytes` may be written now. If not, the task is woken again behind all tasks that are ready.
    fn may_write(&mut self, cx: &Context<'_>, bytes: usize) -> bool {
        match self.state {
            WriteState::Idle if self.left_at_once == 0 => {
                self.state = WriteState::Yielded(bytes);
                cx.waker().wake_by_ref();
                return false;
            }
            WriteState::Idle => self.left_at_once -= 1,
            WriteState::Yielded(before) if bytes <= before => {
                self.lone_writes = (2 * self.lone_writes).clamp(1, LONE_WRITES_MAX);
                self.left_at_once = self.lone_writes;
            }
            WriteState::Yielded(_) => self.lone_writes = 0,
            WriteState::Writing => {}
        }
        self.state = WriteState::Writing;
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescedWrites<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.may_write(cx, bytes.len()) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.may_write(cx, parts.iter().map(|part| part.len()).sum()) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.state = WriteState::Idle;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for CoalescedWrites<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

/// A connector whose connections coalesce their writes.
#[derive(Debug, Clone)]
pub struct CoalescingConnector<C>(pub C);

impl CoalescingConnector<HttpConnector> {
    /// Returns a connector for TCP to one of the addresses of a host name, without delay for small messages.
    #[must_use]
    pub fn tcp() -> Self {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        Self(connector)
    }
}

impl<C, S> Service<Uri> for CoalescingConnector<C>
where
    C: Service<Uri, Response = TokioIo<S>>,
    C::Future: Send + 'static,
{
    type Response = TokioIo<CoalescedWrites<S>>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialling = self.0.call(uri);
        Box::pin(async move { Ok(TokioIo::new(CoalescedWrites::new(dialling.await?.into_inner()))) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a message of `bytes`, joined by `joining` bytes if the connection yields. Returns whether it yielded.
    fn message(stream: &mut CoalescedWrites<Vec<u8>>, bytes: usize, joining: usize) -> bool {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let before = stream.stream.len();
        let yielded = Pin::new(&mut *stream).poll_write(&mut cx, &vec![1; bytes]).is_pending();
        if yielded {
            let all = vec![1; bytes + joining];
            assert!(Pin::new(&mut *stream).poll_write(&mut cx, &all).is_ready(), "a connection yields once");
        }
        assert!(Pin::new(&mut *stream).poll_flush(&mut cx).is_ready());
        assert_eq!(wakes.0.load(Ordering::Relaxed), usize::from(yielded), "a task that yields is woken once");
        assert_eq!(stream.stream.len() - before, bytes + if yielded { joining } else { 0 });
        yielded
    }

    /// While other messages join, every message yields first. The longer no message joins, the more messages are
    /// written without a yield.
    #[test]
    fn a_message_yields_while_others_join() {
        let mut stream = CoalescedWrites::new(Vec::new());
        for _ in 0..5 {
            assert!(message(&mut stream, 30, 90));
        }
        let at_once = |stream: &mut CoalescedWrites<Vec<u8>>| (0..).take_while(|_| !message(stream, 30, 0)).count();
        assert!(message(&mut stream, 30, 0));
        assert_eq!([(); 7].map(|()| at_once(&mut stream)), [1, 2, 4, 8, 16, 32, 32]);
        for _ in 0..LONE_WRITES_MAX {
            assert!(!message(&mut stream, 30, 90));
        }
        assert!(message(&mut stream, 30, 90));
        assert!(message(&mut stream, 30, 90), "another message joined");
    }

    /// A message that is written in parts yields once, not before each part.
    #[test]
    fn a_message_in_parts_yields_once() {
        let mut stream = CoalescedWrites::new(Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"one").is_pending());
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"one and two").is_ready());
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"three").is_ready());
        assert!(Pin::new(&mut stream).poll_flush(&mut cx).is_ready());
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"four").is_pending());
    }
}
