//! Events of a session's holds, between its stream and their reader.

use crate::limits::HOLD_NEWS_WAITING_MAX;
use crate::model::{Event, Position, Refusal};
use crate::mutex::Mutex;
use crate::rpc::convert::Wire;
use crate::rpc::pb;
use crate::service::{EventSender, Events, NotSent, ServiceError};

/// Events that a stream has received, since its start or since the last gap.
pub(super) struct HoldEvents(Mutex<Feed>);

/// One channel, with its receiver until a reader takes it. The sender is `None` once the stream is over.
struct Feed {
    sender: Option<EventSender>,
    unread: Option<Events>,
}

impl Feed {
    fn new() -> Self {
        let (sender, events) = Events::channel(HOLD_NEWS_WAITING_MAX);
        Self { sender: Some(sender), unread: Some(events) }
    }
}

impl HoldEvents {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Feed::new()))
    }

    /// Sends an event to the reader. The subscription of a reader that is too slow ends with an error that says so.
    pub(super) fn push(&self, event: Event) {
        let resume = event.position.before_entry();
        if self.0.lock().sender.as_ref().is_some_and(|sender| !sender.try_send(event)) {
            self.gap("they were not read in time", resume);
        }
    }

    /// Records that the node did not send some events after the position `resume`, if it is known.
    pub(super) fn missed(&self, resume: Option<Position>) {
        self.gap("the node did not send some events of the session's holds", resume.unwrap_or_default());
    }

    /// Ends the reader's subscription with an error, so that it subscribes again. A reader that subscribes later gets
    /// the error first.
    fn gap(&self, why: &str, resume: Position) {
        let mut feed = self.0.lock();
        let Some(read) = feed.sender.take() else { return };
        let unread = feed.unread.is_some();
        *feed = Feed::new();
        if let Some(sender) = if unread { feed.sender.clone() } else { Some(read) } {
            sender.end(ServiceError::EventsMissed { why: why.to_owned(), resume });
        }
    }

    /// Ends the reader's subscription with an error that says how the session ended.
    pub(super) fn session_ended(&self, ended: pb::SessionEnded) {
        let refused = pb::Refused { why: Some(pb::refused::Why::SessionEnded(ended)) };
        let sender = self.0.lock().sender.take();
        if let (Some(sender), Ok(ended)) = (sender, Refusal::from_wire("session_ended", refused)) {
            sender.end(ServiceError::Refused(ended));
        }
    }

    /// Ends the reader's subscription, because the stream is over.
    pub(super) fn close(&self) {
        self.0.lock().sender = None;
    }

    /// Returns the events that no reader has taken yet, and all later ones.
    pub(super) fn subscribe(&self) -> Result<Events, ServiceError> {
        let mut feed = self.0.lock();
        if let Some(unread) = feed.unread.take() {
            return Ok(unread);
        }
        if feed.sender.is_none() {
            return Err(ServiceError::not_sent(NotSent::Detached));
        }
        let (sender, events) = Events::channel(HOLD_NEWS_WAITING_MAX);
        *feed = Feed { sender: Some(sender), unread: None };
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndReason, EventKind, LogTime, SessionId, Subject, WallTime};

    fn event(index: u64) -> Event {
        Event {
            position: Position { index, n: 0 },
            at: LogTime(1),
            wall: WallTime(0),
            namespace: None,
            subject: Subject::Cluster,
            kind: EventKind::Recalled,
        }
    }

    /// The first reader also gets the events from before its subscription; a later reader gets only later events.
    #[tokio::test]
    async fn events_wait_for_their_first_reader() {
        let feed = HoldEvents::new();
        feed.push(event(1));
        let mut first = feed.subscribe().expect("open");
        feed.push(event(2));
        assert_eq!((first.next().await, first.next().await), (Ok(event(1)), Ok(event(2))));
        let mut second = feed.subscribe().expect("open");
        feed.push(event(3));
        assert_eq!((first.next().await, second.next().await), (Err(ServiceError::Stopping), Ok(event(3))));
        feed.close();
        assert_eq!(second.next().await, Err(ServiceError::Stopping));
        assert!(matches!(feed.subscribe(), Err(ServiceError::NotSent { why: NotSent::Detached, .. })));
    }

    /// The end of a session is reported after the events before it.
    #[tokio::test]
    async fn an_end_is_reported_with_its_reason() {
        let feed = HoldEvents::new();
        let mut reader = feed.subscribe().expect("open");
        feed.push(event(1));
        let (session, reason) = (SessionId::new(1, 1), EndReason::Broken);
        feed.session_ended(pb::SessionEnded { session: session.to_wire(), reason: reason.to_wire(), why: None });
        assert_eq!(reader.next().await, Ok(event(1)));
        let ended = Refusal::SessionEnded { session, reason, why: None };
        assert_eq!(reader.next().await, Err(ServiceError::Refused(ended)));
        assert!(feed.subscribe().is_err());
    }

    /// A gap is reported to the current reader, and otherwise to the next one, even if only too many events caused it.
    #[tokio::test]
    async fn a_gap_is_reported() {
        let feed = HoldEvents::new();
        for index in 0..=HOLD_NEWS_WAITING_MAX as u64 {
            feed.push(event(index));
        }
        let mut late = feed.subscribe().expect("open");
        assert!(matches!(late.next().await, Err(ServiceError::EventsMissed { .. })));
        let mut reader = feed.subscribe().expect("open");
        let known = Position { index: 4, n: 2 };
        feed.missed(Some(known));
        assert!(matches!(reader.next().await, Err(ServiceError::EventsMissed { resume, .. }) if resume == known));
        let mut slow = feed.subscribe().expect("open");
        for index in 0..=HOLD_NEWS_WAITING_MAX as u64 {
            feed.push(event(index));
        }
        for index in 0..HOLD_NEWS_WAITING_MAX as u64 {
            assert_eq!(slow.next().await, Ok(event(index)));
        }
        let missed = slow.next().await.expect_err("one had no space");
        let not_read = event(HOLD_NEWS_WAITING_MAX as u64).position;
        assert!(matches!(missed, ServiceError::EventsMissed { resume, .. } if resume < not_read), "{missed}");
        feed.close();
        feed.missed(None);
        assert!(feed.subscribe().expect("the feed after the gap").next().await.is_err());
        assert!(matches!(feed.subscribe(), Err(ServiceError::NotSent { why: NotSent::Detached, .. })));
    }
}
