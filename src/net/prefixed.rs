//! A connection some of whose bytes were read before it was passed on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that first returns bytes that were already read from it.
#[derive(Debug)]
pub(super) struct Prefixed<S> {
    /// Bytes to return first, without those that were returned already.
    first: Vec<u8>,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(super) fn new(first: Vec<u8>, stream: S) -> Self {
        Self { first, stream }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let some = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..some]);
        self.first.drain(..some);
        Poll::Ready(Ok(()))
    }
}

/// Implements the writes of a type whose field `stream` gets them unchanged.
macro_rules! writes_to_stream {
    ($name:ident) => {
        impl<S: AsyncWrite + Unpin> AsyncWrite for $name<S> {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, buf)
            }
            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
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
    };
}
pub(super) use writes_to_stream;

writes_to_stream!(Prefixed);
