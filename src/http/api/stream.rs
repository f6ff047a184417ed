//! Answers that are streams of events: server-sent events, or lines of JSON. Each lasts until its caller disconnects or
//! stops reading, or the node stops.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, unfold};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;
use utoipa::ToSchema;

use super::call::{Answered, Call, RequestContext};
use super::problem::{Ended, Failed, add_point};
use crate::limits;
use crate::service::{ErrorCode, LockService, TakenPlace};

/// A call that is answered with a stream of events. As of [`Call`], its fields are those of the
/// request, and its comment describes it.
pub(super) trait StreamCall: DeserializeOwned + ToSchema + Send + 'static {
    const METHOD: Method = Method::GET;
    /// The name of the call.
    const WORD: &'static str;
    /// The path of the route. `None` if it is the name of the call below the namespace.
    const PATH: Option<&'static str> = None;
    /// Errors that it may return before the stream begins, besides those that all calls may return.
    const ERRORS: &'static [ErrorCode] = &[];
    /// Whether a stream without events has comments, which show that it works: in lines of JSON, empty lines.
    const COMMENTS: bool = true;
    type Event: StreamEvent;

    /// Returns the path of the route.
    fn path() -> String {
        Self::PATH.map_or_else(|| format!("/v1/ns/{{namespace}}/{}", Self::WORD), str::to_owned)
    }

    /// Begins the stream. An error is the whole answer. The events end when their sender is dropped, and an error is
    /// the last one.
    fn begin<S: LockService>(
        self,
        context: RequestContext<S>,
    ) -> impl Future<Output = Result<Answered<Events<Self::Event>>, Failed>> + Send;
}

/// Something that is made of all calls: their routes, or their description.
pub(super) trait OfCalls: Sized {
    /// Adds a call.
    fn with<C: Call>(self) -> Self;

    /// Adds a call that is answered with a stream.
    fn streaming<C: StreamCall>(self) -> Self;

    /// Adds a call that is answered with a stream if its caller accepts one.
    fn with_both<C: Call + StreamCall>(self) -> Self;
}

/// Events that were not sent to the caller yet.
pub(super) type Events<E> = mpsc::Receiver<Sent<E>>;

/// An event, or the error that ends the stream.
pub(super) type Sent<E> = Result<E, Failed>;

/// An event of a stream: an object with the field `event`.
pub(super) trait StreamEvent: Serialize + ToSchema + Send + 'static {
    /// Returns the field `event`.
    fn word(&self) -> &'static str;

    /// Returns the position from which a caller can continue after this event, if it can.
    fn id(&self) -> Option<String> {
        None
    }
}

/// The media type of lines of JSON.
pub(super) const LINES: &str = "application/x-ndjson";
/// The media type of server-sent events.
pub(super) const SSE: &str = "text/event-stream";

/// Whether the caller accepts this media type.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|one| {
        let essence = one.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case(kind)
    })
}

/// Whether the caller of a call that has two kinds of answers wants a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    accepts(headers, LINES) || accepts(headers, SSE)
}

/// Begins a stream, which has a place among the streams and polls of the port.
pub(super) async fn begin<S: LockService, C: StreamCall>(
    call: C,
    context: RequestContext<S>,
    headers: &HeaderMap,
) -> Result<Response, Failed> {
    let place = context.place(&context.api.polls)?;
    let Answered { point, value: events, .. } = call.begin(context).await?;
    let mut answer = if accepts(headers, LINES) { lines::<C>(events, place) } else { server_sent::<C>(events, place) };
    let headers = answer.headers_mut();
    // A proxy that collects the answer would delay its events.
    headers.insert(BUFFERING, header::HeaderValue::from_static("no"));
    // An event may contain a secret, and `Sse` lets caches keep it.
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    if let Some((index, now)) = point {
        add_point(headers, index, now);
    }
    Ok(answer)
}

const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Returns the events one by one. The place is free once the stream is dropped.
fn one_by_one<E: StreamEvent>(
    events: Events<E>,
    place: TakenPlace,
) -> impl futures_util::Stream<Item = Sent<E>> + Send {
    unfold((events, place), |(mut events, place)| async move { Some((events.recv().await?, (events, place))) })
}

fn lines<C: StreamCall>(events: Events<C::Event>, place: TakenPlace) -> Response {
    let line = |event: Sent<C::Event>| {
        let object = match event {
            Ok(event) => serde_json::to_string(&event),
            Err(failed) => serde_json::to_string(&Ended::new(&failed)),
        };
        object.unwrap_or_default() + "\n"
    };
    let events = Box::pin(one_by_one(events, place));
    let lines = unfold(events, move |mut events| async move {
        let comment = async {
            sleep(Duration::from_millis(limits::STREAM_COMMENT_MS)).await;
            Some("\n".to_owned())
        };
        let next = tokio::select! {
            biased;
            event = events.next() => event.map(line),
            line = comment, if C::COMMENTS => line,
        };
        Some((Ok::<_, Infallible>(next?), events))
    });
    ([(header::CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response()
}

fn server_sent<C: StreamCall>(events: Events<C::Event>, place: TakenPlace) -> Response {
    let events = one_by_one(events, place).map(|event| match event {
        Ok(event) => {
            let sent = event.id().into_iter().fold(sse::Event::default(), sse::Event::id);
            sent.event(event.word()).json_data(&event)
        }
        Err(failed) => {
            let ended = Ended::new(&failed);
            sse::Event::default().event(ended.event).json_data(&ended)
        }
    });
    let sse = Sse::new(events);
    if !C::COMMENTS {
        return sse.into_response();
    }
    sse.keep_alive(KeepAlive::new().interval(Duration::from_millis(limits::STREAM_COMMENT_MS))).into_response()
}

impl<S: LockService> RequestContext<S> {
    /// Sends the events of `next` in a task of the node, until `next` returns an error or `None`, the caller
    /// disconnects, or the node stops. While the caller has not taken the last event, it waits for a limited time.
    pub(super) fn stream<E: StreamEvent, N: NextEvent<E>>(self, mut next: N) -> Events<E> {
        let (sender, events) = mpsc::channel(1);
        let tasks = self.api.tasks.clone();
        tasks.run(async move {
            let (mut stopped, mut left) = (pin!(self.stopped()), READY_AT_STOP_MAX);
            let mut over = pin!(self.last_taken());
            loop {
                let event = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    event = next.next(), if 0 < left => event,
                    stopping = &mut stopped => Err(stopping),
                };
                left -= usize::from(0 < left && self.stops());
                let (last, event) = match event {
                    Ok(Some(event)) => (false, Ok(event)),
                    Ok(None) => return,
                    Err(failed) => (true, Err(failed)),
                };
                let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
                let is_sent = tokio::select! {
                    biased;
                    is_sent = sent(&sender, event, longest) => is_sent,
                    () = &mut over => false,
                };
                if !is_sent || last {
                    return;
                }
            }
        });
        events
    }

    /// Waits until the node stops, and then for as long as its callers may take to receive their last events. That is
    /// half the time that the node waits for its ports, so no caller uses up that time.
    pub(super) async fn last_taken(&self) {
        self.stopped().await;
        sleep(Duration::from_millis(limits::CLOSE_WAIT_MS / 2)).await;
    }
}

/// Events that a stream still sends once the node stops, if they are ready. Without a limit, a stream whose next event
/// is always ready would never end.
pub(super) const READY_AT_STOP_MAX: usize = limits::HOLD_NEWS_WAITING_MAX;

/// The source of a stream's events.
pub(super) trait NextEvent<E>: Send + 'static {
    /// Returns the next event; `None` after the last one. Dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = Result<Option<E>, Failed>> + Send;
}

/// Sends an event. Returns false if the caller is gone, or takes nothing within this time.
pub(super) async fn sent<E>(sender: &mpsc::Sender<Sent<E>>, event: Sent<E>, longest: Duration) -> bool {
    tokio::time::timeout(longest, sender.send(event)).await.is_ok_and(|sent| sent.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::api::tests::fake::{Fake, context};
    use crate::http::api::watch::WatchQuery;
    use crate::service::{Places, ServiceError, Source};

    type WatchEvent = <WatchQuery as StreamCall>::Event;

    /// A stream without events has a comment from time to time, an error is its last event, and then its place is free.
    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_has_comments() {
        let last = r#"{"event":"stopping","type":"/v1/errors#stopping""#;
        check_silent_stream(server_sent::<WatchQuery>, SSE, ":\n\n", &format!("event: stopping\ndata: {last}")).await;
        check_silent_stream(lines::<WatchQuery>, LINES, "\n", last).await;
    }

    /// Checks a stream of this kind without events, its comment, and the start of its last event.
    async fn check_silent_stream(
        stream: fn(Events<WatchEvent>, TakenPlace) -> Response,
        kind: &str,
        comment: &str,
        last: &str,
    ) {
        let places = Places::new(1);
        let place = places.take(Source::InProcess).expect("the only place");
        let (sender, events) = mpsc::channel(1);
        let answer = stream(events, place);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], kind);
        let mut body = answer.into_body().into_data_stream();
        let longest = Duration::from_millis(2 * limits::STREAM_COMMENT_MS);
        let mut next = async || {
            let bytes = tokio::time::timeout(longest, body.next()).await.expect("a comment in time");
            bytes.map(|bytes| String::from_utf8(bytes.expect("bytes").to_vec()).expect("text"))
        };
        let begun = tokio::time::Instant::now();
        for comments in 1..=2 {
            assert_eq!(next().await.as_deref(), Some(comment));
            assert_eq!(begun.elapsed(), Duration::from_millis(comments * limits::STREAM_COMMENT_MS));
        }
        sender.send(Err(ServiceError::Stopping.into())).await.expect("sent");
        drop(sender);
        let found = next().await.expect("an event");
        assert!(found.starts_with(last), "{found}");
        assert_eq!((next().await, places.in_use()), (None, 0));
    }

    /// No cache keeps a stream, because an event may contain a secret. A watch names the point at which it begins.
    #[tokio::test(start_paused = true)]
    async fn no_cache_keeps_a_stream() {
        for kind in [SSE, LINES] {
            let (context, _stop) = context(&Fake::new());
            let accept: HeaderMap = [(header::ACCEPT, kind.parse().expect("a value"))].into_iter().collect();
            let query: WatchQuery = serde_json::from_value(serde_json::json!({})).expect("fields");
            let answer = begin(query, context, &accept).await.expect("a stream");
            let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
            assert_eq!(header("cache-control"), Some("no-store"), "{kind}");
            assert_eq!(header("lockkeeper-index"), Some("1"), "{kind}");
            assert!(header("lockkeeper-log-time").is_some(), "{kind}");
        }
    }

    #[derive(Serialize, ToSchema)]
    struct Tick {
        event: &'static str,
    }

    impl StreamEvent for Tick {
        fn word(&self) -> &'static str {
            self.event
        }
    }

    /// A source whose next event is always ready.
    struct Ticks;

    impl NextEvent<Tick> for Ticks {
        async fn next(&mut self) -> Result<Option<Tick>, Failed> {
            Ok(Some(Tick { event: "tick" }))
        }
    }

    /// Events that are ready when the node stops reach the caller before `stopping`, but not without end.
    #[tokio::test(start_paused = true)]
    async fn a_stop_comes_after_the_events_that_are_ready() {
        let (context, stop) = context(&Fake::new());
        stop.send_replace(true);
        let (mut events, mut ticks) = (context.stream(Ticks), 0);
        let last = loop {
            match events.recv().await.expect("a last event") {
                Ok(_) => ticks += 1,
                Err(last) => break last,
            }
        };
        assert_eq!(ticks, READY_AT_STOP_MAX);
        let Failed::Service(error, _) = last else { panic!("{last:?}") };
        assert!(matches!(*error, ServiceError::Stopping), "{error}");
    }

    /// A stream whose caller takes nothing ends before the node that stops has waited for its ports.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_delays_no_stop() {
        let (context, stop) = context(&Fake::new());
        let tasks = context.api.tasks.clone();
        let events = context.stream(Ticks);
        stop.send_replace(true);
        let port = Duration::from_millis(limits::CLOSE_WAIT_MS - 1);
        tokio::time::timeout(port, tasks.ended()).await.expect("it ends before the port");
        assert_eq!(events.len(), 1, "the caller is there and has taken nothing");
    }

    /// A caller that takes nothing in time is disconnected.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_is_cut_off() {
        let (sender, mut events) = mpsc::channel(1);
        let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
        assert!(sent(&sender, Ok(1), longest).await);
        let begun = tokio::time::Instant::now();
        assert!(!tokio::time::timeout(2 * longest, sent(&sender, Ok(2), longest)).await.expect("it gives up"));
        assert_eq!(begun.elapsed(), longest);
        events.recv().await.expect("an event").expect("no error");
        assert!(sent(&sender, Ok(3), longest).await);
    }

    /// The caller gets lines if it accepts them, and a stream at all only if it accepts one.
    #[test]
    fn the_caller_chooses_the_kind_of_answer() {
        let accept = |text: &str| [(header::ACCEPT, text.parse().expect("a value"))].into_iter().collect();
        let chosen = |text: &str| (is_wanted(&accept(text)), accepts(&accept(text), LINES));
        assert_eq!(chosen("application/x-ndjson"), (true, true));
        assert_eq!(chosen("application/json, Application/X-NDJSON;q=0.5"), (true, true));
        assert_eq!(chosen("text/event-stream"), (true, false));
        for other in ["*/*", "application/json", "text/event-streams", ""] {
            assert_eq!(chosen(other), (false, false), "{other}");
        }
    }
}
