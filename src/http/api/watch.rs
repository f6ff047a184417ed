//! `watch`: what happens to locks and sessions, as a stream that continues after any of its events.

use std::pin::pin;
use std::time::Duration;

use axum::http::HeaderValue;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::call::{Answered, RequestContext};
use super::fields::{of_this_log, position};
use super::problem::Failed;
use super::stream::{Events, READY_AT_STOP_MAX, Sent, StreamCall, StreamEvent};
use crate::limits;
use crate::model::{Invalid, Position, Query};
use crate::service::{self, ErrorCode, LockService, Scope, ServiceError, Subscription};
use crate::shapes::{Happened, ResumePosition};

/// Follows what happens to the locks whose names have a prefix, to the sessions of the namespace, and to the cluster.
/// The id of each event is `INDEX.N@CLUSTER`: a stream that begins with it in `from`, or in the header `Last-Event-ID`,
/// at any node, continues after that event, without loss or repetition. A caller that is too far behind gets the last
/// event `events-missed`, with the position from which to continue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prefix": "night"}))]
pub(super) struct WatchQuery {
    /// Prefix of the names. Default: all locks.
    prefix: Option<String>,
    /// Position after which the stream begins, `INDEX.N` or `INDEX.N@CLUSTER`. Default: from now on.
    from: Option<String>,
}

impl StreamEvent for Happened {
    fn word(&self) -> &'static str {
        self.event
    }

    fn id(&self) -> Option<String> {
        Some(format!("{}@{}", self.position, self.cluster_id))
    }
}

impl StreamCall for WatchQuery {
    const WORD: &'static str = "watch";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::EventsMissed];
    type Event = Happened;

    async fn begin<S: LockService>(self, context: RequestContext<S>) -> Result<Answered<Events<Happened>>, Failed> {
        let from = from(context.last_event.as_ref(), self.from.as_deref())?;
        let cluster_id = context.cluster_id()?;
        let read = context.query(Query::Totals, None).await?;
        let now = Position { index: read.index, n: u32::MAX };
        let after = from.map_or(Ok(now), |from| of_this_log(&from, cluster_id, now.index, now))?;
        let scope = Scope::Namespace { namespace: context.namespace.clone(), prefix: self.prefix.unwrap_or_default() };
        let subscription = Subscription { scope, after: Some(after), cluster_id: Some(cluster_id) };
        let events = context.api.retry().until_read(|| context.service.subscribe(subscription.clone())).await?;
        let (queue, waiting) = Queue::new(after);
        let tasks = context.api.tasks.clone();
        tasks.run(Follow { context, events, queue, cluster_id, begun: now }.run());
        Ok(Answered::read(&read, waiting))
    }
}

/// Reads the position after which a watch begins: from the header of a client that continues, or else from the query.
fn from(last: Option<&HeaderValue>, query: Option<&str>) -> Result<Option<ResumePosition>, Invalid> {
    let Some(last) = last else { return query.map(|text| position("from", text)).transpose() };
    // A text that is no position has its own error.
    position(LAST_EVENT, &String::from_utf8_lossy(last.as_bytes())).map(Some)
}

/// The header as an error names it.
const LAST_EVENT: &str = "Last-Event-ID";

/// A watch that runs.
struct Follow<S> {
    context: RequestContext<S>,
    events: service::Events,
    queue: Queue,
    cluster_id: u128,
    /// The newest position when the watch began.
    begun: Position,
}

impl<S: LockService> Follow<S> {
    async fn run(mut self) {
        if let Err(last) = self.follow().await {
            self.queue.end(last);
        }
    }

    /// Sends the events until the caller is gone. Returns the error that ends the stream.
    async fn follow(&mut self) -> Result<(), Failed> {
        let (mut stopped, mut left) = (pin!(self.context.stopped()), READY_AT_STOP_MAX);
        loop {
            let event = tokio::select! {
                biased;
                () = self.queue.sender.closed() => return Ok(()),
                event = self.events.next(), if 0 < left => event,
                stopping = &mut stopped => return Err(stopping),
            };
            let event = event?;
            let stops = self.context.stops();
            left -= usize::from(0 < left && stops);
            // A node that stops waits for no slow caller.
            let is_old = !stops && event.position <= self.begun;
            let happened = Happened::new(&event, self.cluster_id);
            tokio::select! {
                biased;
                added = self.queue.add(event.position, happened, is_old) => added?,
                stopping = &mut stopped => return Err(stopping),
            }
        }
    }
}

/// Events that the caller has not received.
struct Queue {
    /// One place more than the events may have, for the error that ends the stream.
    sender: mpsc::Sender<Sent<Happened>>,
    /// The position of the last event that was added.
    last: Position,
}

impl Queue {
    fn new(last: Position) -> (Self, Events<Happened>) {
        let (sender, waiting) = mpsc::channel(limits::EVENTS_WAITING_MAX + 1);
        (Self { sender, last }, waiting)
    }

    /// Adds an event. If there is no space for it, a caller of new events is too slow; one of old events may be slower
    /// than the node that reads them, and gets some time.
    async fn add(&mut self, position: Position, event: Happened, is_old: bool) -> Result<(), Failed> {
        let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
        // Old events wait in the node anyway, so few of them wait here, too.
        let free = limits::EVENTS_WAITING_MAX + 2 - limits::OLD_EVENTS_WAITING_MAX;
        let has_space = if is_old {
            timeout(longest, self.sender.reserve_many(free)).await.is_ok_and(|space| space.is_ok())
        } else {
            1 < self.sender.capacity()
        };
        if !has_space {
            let why = format!("the caller has not taken {} events", limits::EVENTS_WAITING_MAX);
            return Err(ServiceError::EventsMissed { why, resume: self.last }.into());
        }
        self.last = position;
        // The caller may be gone, which the next look shows.
        self.sender.try_send(Ok(event)).ok();
        Ok(())
    }

    fn end(&self, last: Failed) {
        self.sender.try_send(Err(last)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::api::tests::fake::{Fake, context};
    use crate::model::{Event, EventKind, LogTime, Subject, WallTime};

    fn gap(index: u64) -> Event {
        let position = Position { index, n: 0 };
        let kind = EventKind::LeaderlessGap { gap_ms: 1 };
        let (at, wall) = (LogTime(index), WallTime(0));
        Event { position, at, wall, namespace: None, subject: Subject::Cluster, kind }
    }

    fn event(index: u64) -> (Position, Happened) {
        let gap = gap(index);
        (gap.position, Happened::new(&gap, 1))
    }

    /// A watch whose node stops sends the events that are ready, and then `stopping`.
    #[tokio::test(start_paused = true)]
    async fn a_stop_comes_after_the_events_that_are_ready() {
        let (context, stop) = context(&Fake::new());
        let (sender, events) = service::Events::channel(4);
        for index in 1..=3 {
            assert!(sender.send(Ok(gap(index))).await);
        }
        stop.send_replace(true);
        let begun = Position::default();
        let (queue, mut waiting) = Queue::new(begun);
        Follow { context, events, queue, cluster_id: 1, begun }.run().await;
        for index in 1..=3 {
            let happened = waiting.recv().await.expect("an event").expect("no error");
            assert_eq!(happened.position, format!("{index}.0"));
        }
        let last = waiting.recv().await.expect("an end").expect_err("an error");
        let Failed::Service(error, _) = last else { panic!("{last:?}") };
        assert!(matches!(*error, ServiceError::Stopping), "{error}");
    }

    /// The header of a client that continues counts, also if it is no text: then the watch does not begin from now.
    #[test]
    fn a_last_event_that_is_no_position_is_refused() {
        let read = |bytes: &[u8]| from(Some(&HeaderValue::from_bytes(bytes).expect("a value")), Some("1.0"));
        assert_eq!(read(b"7.1").expect("read").map(|from| from.position), Some(Position { index: 7, n: 1 }));
        for bytes in [&b"7.1\xff"[..], "7.1\u{e9}".as_bytes(), b"", b"now"] {
            assert_eq!(read(bytes).map_err(|invalid| invalid.field).err().as_deref(), Some(LAST_EVENT), "{bytes:?}");
        }
        assert_eq!(from(None, Some("1.0")).expect("read").map(|from| from.position), Some(Position { index: 1, n: 0 }));
    }

    async fn full(most: usize, is_old: bool) -> (Queue, Events<Happened>) {
        let (mut queue, waiting) = Queue::new(Position::default());
        for index in 1..=most as u64 {
            let (position, happened) = event(index);
            queue.add(position, happened, is_old).await.expect("space");
        }
        (queue, waiting)
    }

    /// A caller that has not taken 4,096 events gets all of them, and then the position from which it can continue.
    #[tokio::test(start_paused = true)]
    async fn a_slow_caller_loses_no_event() {
        let (mut queue, mut waiting) = full(limits::EVENTS_WAITING_MAX, false).await;
        let (position, happened) = event(5_000);
        let late = queue.add(position, happened, false).await.expect_err("no space");
        queue.end(late);
        drop(queue);
        let mut ends = Vec::new();
        while let Some(next) = waiting.recv().await {
            ends.push(next);
        }
        let last = ends.pop().expect("an error").expect_err("an error");
        assert!(ends.iter().all(Result::is_ok) && ends.len() == limits::EVENTS_WAITING_MAX);
        let Failed::Service(error, _) = last else { panic!("{last:?}") };
        let ServiceError::EventsMissed { resume, .. } = *error else { panic!("{error:?}") };
        assert_eq!(resume.index, limits::EVENTS_WAITING_MAX as u64);
    }

    /// A caller of old events may be slow, as long as it takes one in time.
    #[tokio::test(start_paused = true)]
    async fn old_events_wait_for_their_caller() {
        let (mut queue, mut waiting) = full(limits::OLD_EVENTS_WAITING_MAX, true).await;
        let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
        let (position, happened) = event(5_000);
        let taking = async {
            tokio::time::sleep(longest / 2).await;
            waiting.recv().await.expect("an event").expect("no error")
        };
        let (added, _) = tokio::join!(queue.add(position, happened, true), taking);
        added.expect("space in time");
        let begun = tokio::time::Instant::now();
        let (position, happened) = event(5_001);
        queue.add(position, happened, true).await.expect_err("no space");
        assert_eq!(begun.elapsed(), longest);
    }
}
