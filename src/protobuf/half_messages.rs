//! Limits the gRPC messages that have arrived in part, and the calls that wait for a message. A decoder allocates space
//! for a whole message as soon as it knows its length, and one connection may have thousands of streams.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http::Request};
use tonic::server::NamedService;

use crate::limits::{
    HALF_MESSAGES_BYTES_MAX, HALF_MESSAGES_FEW_BYTES_MAX, HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX,
    HALF_MESSAGES_SHARED_BYTES_MAX, MESSAGE_MS_MAX, SILENT_CALL_BYTES,
};
use crate::net::ConnectionInfo;

/// Bytes before each message: a flag, and the length of the message.
const PREFIX_BYTES: usize = 5;

/// A gRPC service that limits the messages of its requests that have arrived in part: their announced bytes, of each
/// connection and of all together, and the time from the first to the last byte of a message. A call whose first
/// message has not begun counts, too, and has the same time for its first byte.
#[derive(Debug, Clone)]
pub(crate) struct HalfMessages<S> {
    service: S,
    /// Length beyond which the service refuses a message as soon as it is announced.
    message_bytes_max: usize,
    /// Announced bytes of all half messages.
    all: Arc<AtomicUsize>,
}

impl<S> HalfMessages<S> {
    /// Creates a service that shares the count `all` with others, and refuses messages of more than
    /// `message_bytes_max` bytes itself.
    pub(crate) fn new(service: S, message_bytes_max: usize, all: &Arc<AtomicUsize>) -> Self {
        Self { service, message_bytes_max, all: Arc::clone(all) }
    }
}

impl<S: NamedService> NamedService for HalfMessages<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for HalfMessages<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let info = request.extensions().get().map(|info: &ConnectionInfo| Arc::clone(&info.half_received));
        let counted = Counted { bytes: 0, of_connection: info.unwrap_or_default(), all: Arc::clone(&self.all) };
        let progress = Progress::new(self.message_bytes_max);
        let request =
            request.map(|body| Body::new(FollowedBody { body, progress, counted, is_silent: true, deadline: None }));
        self.service.call(request)
    }
}

/// The place in a sequence of messages.
#[derive(Debug)]
struct Progress {
    message_bytes_max: usize,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have arrived.
    prefix_bytes: usize,
    /// Length of the message that has arrived in part; 0 between two messages.
    announced: usize,
    /// Bytes of that message that are missing.
    missing: usize,
}

impl Progress {
    fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, prefix: [0; PREFIX_BYTES], prefix_bytes: 0, announced: 0, missing: 0 }
    }

    /// Whether a message has arrived in part.
    fn is_half(&self) -> bool {
        self.prefix_bytes != 0 || self.missing != 0
    }

    /// Adds the next bytes. Returns whether a message has begun in them.
    fn follow(&mut self, mut bytes: &[u8]) -> bool {
        let mut begun = false;
        while !bytes.is_empty() {
            if 0 < self.missing {
                let taken = self.missing.min(bytes.len());
                self.missing -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            begun |= self.prefix_bytes == 0;
            self.announced = 0;
            let taken = (PREFIX_BYTES - self.prefix_bytes).min(bytes.len());
            self.prefix[self.prefix_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.prefix_bytes += taken;
            bytes = &bytes[taken..];
            if self.prefix_bytes == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.prefix_bytes = 0;
                self.announced = u32::from_be_bytes(length) as usize;
                self.missing = self.announced;
            }
        }
        begun
    }

    /// Returns the bytes that the decoder has allocated for a half message.
    fn allocated(&self) -> usize {
        let allocates = 0 < self.missing && self.announced <= self.message_bytes_max;
        if allocates { self.announced } else { 0 }
    }
}

/// The bytes of the half message of one request, which count until it is whole or the request ends.
#[derive(Debug)]
struct Counted {
    bytes: usize,
    of_connection: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Counted {
    /// Replaces the counted bytes. Returns whether they are within the limits.
    fn replace(&mut self, bytes: usize) -> bool {
        let change = |count: &AtomicUsize| {
            let before = count.fetch_add(bytes, Ordering::Relaxed);
            count.fetch_sub(self.bytes, Ordering::Relaxed);
            before + bytes - self.bytes
        };
        let (of_connection, all) = (change(&self.of_connection), change(&self.all));
        self.bytes = bytes;
        let has_few = of_connection <= HALF_MESSAGES_FEW_BYTES_MAX && all <= HALF_MESSAGES_BYTES_MAX;
        has_few || of_connection <= HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX && all <= HALF_MESSAGES_SHARED_BYTES_MAX
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.replace(0);
    }
}

/// The body of a request whose messages are followed.
#[derive(Debug)]
struct FollowedBody {
    body: Body,
    progress: Progress,
    counted: Counted,
    /// Whether no byte of the first message has arrived.
    is_silent: bool,
    /// Deadline of the message that has arrived in part, or of the first byte.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl FollowedBody {
    /// Follows the next bytes. The error ends the request.
    fn follow(&mut self, bytes: &[u8]) -> Result<(), Status> {
        let begun = self.progress.follow(bytes);
        self.is_silent &= bytes.is_empty();
        if !self.progress.is_half() {
            self.deadline = None;
        } else if begun || self.deadline.is_none() {
            self.set_deadline();
        }
        self.count(self.progress.allocated())
    }

    /// Counts the call, which waits for its first message. The error ends the request.
    fn wait(&mut self) -> Result<(), Status> {
        self.set_deadline();
        self.count(SILENT_CALL_BYTES)
    }

    fn set_deadline(&mut self) {
        self.deadline = Some(Box::pin(sleep(Duration::from_millis(MESSAGE_MS_MAX))));
    }

    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes == self.counted.bytes || self.counted.replace(bytes) {
            return Ok(());
        }
        Err(Status::resource_exhausted("too many messages have not arrived yet, or only in part"))
    }
}

impl http_body::Body for FollowedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let read = Pin::new(&mut self.body).poll_frame(cx);
        if read.is_pending()
            && self.is_silent
            && self.deadline.is_none()
            && let Err(status) = self.wait()
        {
            return Poll::Ready(Some(Err(status)));
        }
        if let (Poll::Pending, Some(deadline)) = (&read, &mut self.deadline) {
            ready!(deadline.as_mut().poll(cx));
            let late = format!("a message has not arrived completely within {MESSAGE_MS_MAX} ms");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(late))));
        }
        if let Poll::Ready(Some(Ok(frame))) = &read
            && let Some(bytes) = frame.data_ref()
            && let Err(status) = self.follow(bytes)
        {
            return Poll::Ready(Some(Err(status)));
        }
        read
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, poll_fn};

    use futures_util::FutureExt;
    use http_body::Body as _;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::limits::FRAME_BYTES_MAX;

    /// A body of the chunks that a test sends.
    struct Chunks(mpsc::UnboundedReceiver<Bytes>);

    impl http_body::Body for Chunks {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    /// Returns the followed body of each request.
    #[derive(Clone)]
    struct Followed;

    impl Service<Request<Body>> for Followed {
        type Response = Body;
        type Error = Infallible;
        type Future = Ready<Result<Body, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            std::future::ready(Ok(request.into_body()))
        }
    }

    type Client = mpsc::UnboundedSender<Bytes>;

    async fn request(service: &mut HalfMessages<Followed>, info: &ConnectionInfo) -> (Client, Body) {
        let (client, chunks) = mpsc::unbounded_channel();
        let mut request = Request::new(Body::new(Chunks(chunks)));
        request.extensions_mut().insert(info.clone());
        (client, service.call(request).await.expect("infallible"))
    }

    async fn next(body: &mut Body) -> Option<Result<Bytes, tonic::Code>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().expect("data")).map_err(|status| status.code()))
    }

    /// A message of this many bytes with its prefix.
    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("short").to_be_bytes();
        [&[0][..], &length, &vec![7; bytes]].concat()
    }

    fn service() -> HalfMessages<Followed> {
        HalfMessages::new(Followed, FRAME_BYTES_MAX, &Arc::default())
    }

    /// H-19: a connection has an eighth of the bytes of half messages, and the last quarter is for connections that use
    /// few. Whole messages, and ended requests, do not count.
    #[tokio::test(start_paused = true)]
    async fn half_messages_are_bounded() {
        let mut service = service();
        let half = Bytes::from(message(FRAME_BYTES_MAX)).split_to(PREFIX_BYTES);
        let greedy = HALF_MESSAGES_SHARED_BYTES_MAX / HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX;
        let modest = (HALF_MESSAGES_BYTES_MAX - HALF_MESSAGES_SHARED_BYTES_MAX) / HALF_MESSAGES_FEW_BYTES_MAX;
        let mut open = Vec::new();
        for connection in 0..=greedy + modest {
            let bytes =
                if connection < greedy { HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX } else { HALF_MESSAGES_FEW_BYTES_MAX };
            let of_one = bytes / FRAME_BYTES_MAX;
            let info = ConnectionInfo::new(None, false, None);
            for number in 0..=of_one {
                let (client, mut body) = request(&mut service, &info).await;
                client.send(half.clone()).expect("open");
                let within = number < of_one && connection < greedy + modest;
                let expected = if within { Ok(half.clone()) } else { Err(tonic::Code::ResourceExhausted) };
                assert_eq!(next(&mut body).await, Some(expected), "{number} of connection {connection}");
                if within {
                    open.push((client, body));
                }
            }
        }
        // A request that ends makes space, and so does a message that is whole.
        let info = ConnectionInfo::new(None, false, None);
        drop(open.pop());
        let (client, mut body) = request(&mut service, &info).await;
        client.send(half.clone()).expect("open");
        assert_eq!(next(&mut body).await, Some(Ok(half.clone())));
        let rest = Bytes::from(vec![7; FRAME_BYTES_MAX]);
        client.send(rest.clone()).expect("open");
        assert_eq!(next(&mut body).await, Some(Ok(rest)));
        client.send(half.clone()).expect("open");
        assert_eq!(next(&mut body).await, Some(Ok(half)));
        drop((open, client, body));
        assert_eq!(service.all.load(Ordering::Relaxed), 0);
    }

    /// A call whose first message does not begin counts among the half messages of its connection until it begins, and
    /// ends in the time of a message.
    #[tokio::test(start_paused = true)]
    async fn silent_calls_are_bounded() {
        let mut service = service();
        let info = ConnectionInfo::new(None, false, None);
        let mut silent = Vec::new();
        for _ in 0..HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX / SILENT_CALL_BYTES {
            let (client, mut body) = request(&mut service, &info).await;
            assert_eq!(next(&mut body).now_or_never(), None, "it may wait");
            silent.push((client, body));
        }
        let (_client, mut body) = request(&mut service, &info).await;
        assert_eq!(next(&mut body).await, Some(Err(tonic::Code::ResourceExhausted)));
        drop(body);
        // A call that gets its message makes space for another one.
        let (client, mut whole) = silent.pop().expect("one");
        client.send(message(9).into()).expect("open");
        assert!(next(&mut whole).await.is_some_and(|read| read.is_ok()));
        let longest = Duration::from_millis(MESSAGE_MS_MAX);
        assert!(timeout(2 * longest, next(&mut whole)).await.is_err(), "there is no limit behind a message");
        let (_client, mut body) = request(&mut service, &info).await;
        let begun = Instant::now();
        assert_eq!(next(&mut body).await, Some(Err(tonic::Code::DeadlineExceeded)));
        assert_eq!(begun.elapsed(), longest);
        drop((silent, body));
        assert_eq!(service.all.load(Ordering::Relaxed), 0);
    }

    /// A message has a limited time from its first to its last byte, no matter how it is split. Between two messages
    /// there is no limit.
    #[tokio::test(start_paused = true)]
    async fn a_message_arrives_in_time() {
        let mut service = service();
        let longest = Duration::from_millis(MESSAGE_MS_MAX);
        let (client, mut body) = request(&mut service, &ConnectionInfo::new(None, false, None)).await;
        let bytes = [message(0), message(9), message(300)].concat();
        let boundaries = [0, PREFIX_BYTES, 2 * PREFIX_BYTES + 9, bytes.len()];
        for (at, byte) in bytes.iter().enumerate() {
            client.send(Bytes::copy_from_slice(&[*byte])).expect("open");
            assert_eq!(next(&mut body).await, Some(Ok(Bytes::copy_from_slice(&[*byte]))));
            if boundaries.contains(&(at + 1)) {
                assert!(timeout(2 * longest, next(&mut body)).await.is_err(), "it may be silent after {at} bytes");
            }
        }
        let begun = Instant::now();
        client.send(bytes.into()).expect("open");
        client.send(Bytes::from_static(&[0])).expect("open");
        assert!(next(&mut body).await.is_some_and(|read| read.is_ok()));
        assert!(next(&mut body).await.is_some_and(|read| read.is_ok()));
        tokio::time::sleep(longest / 2).await;
        client.send(Bytes::from_static(&[0])).expect("open");
        assert!(next(&mut body).await.is_some_and(|read| read.is_ok()));
        assert_eq!(next(&mut body).await, Some(Err(tonic::Code::DeadlineExceeded)));
        assert_eq!(begun.elapsed(), longest);
    }
}
