//! Subscribers to the events of single sessions: the end of a session, and what happens to its holds. Events of other
//! sessions wake none of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{HOLD_NEWS_WAITING_MAX, SESSIONS_SWEPT_MIN};
use crate::model::{Event, EventKind, Position, Refusal, SessionId, Subject};
use crate::mutex::Mutex;
use crate::service::{EventSender, Events, ServiceError};

/// Senders by session.
///
/// The end of a session removes its entry. A subscription to a session that had ended before leaves an entry that no
/// end removes: once its subscribers are gone, such an entry is removed the next time that the table has doubled.
#[derive(Debug, Default)]
struct Subscribers {
    senders: Mutex<HashMap<SessionId, Vec<EventSender>>>,
    /// Number of entries that were left when the table was last swept.
    swept: AtomicUsize,
}

impl Subscribers {
    /// Adds a subscriber that may leave `capacity` events unread.
    fn subscribe(&self, session: SessionId, capacity: usize) -> Events {
        let (sender, events) = Events::channel(capacity);
        let mut table = self.senders.lock();
        if 2 * self.swept.load(Ordering::Relaxed).max(SESSIONS_SWEPT_MIN) <= table.len() {
            table.retain(|_, senders| senders.iter().any(|sender| !sender.is_closed()));
            self.swept.store(table.len(), Ordering::Relaxed);
        }
        let senders = table.entry(session).or_default();
        senders.retain(|sender| !sender.is_closed());
        senders.push(sender);
        events
    }

    /// Sends an event. Ends the subscriptions of readers that are too slow: their clients subscribe again and read
    /// their holds.
    fn send(&self, session: Option<SessionId>, event: &Event) {
        let Some(session) = session else { return };
        if let Some(senders) = self.senders.lock().get_mut(&session) {
            let slow = senders.extract_if(.., |sender| !sender.try_send(event.clone()));
            slow.for_each(|sender| sender.end(too_slow(event.position)));
        }
    }

    /// Removes the subscribers to a session that has ended, and returns them.
    fn take(&self, session: SessionId) -> Vec<EventSender> {
        self.senders.lock().remove(&session).unwrap_or_default()
    }

    /// Ends every subscription with the error that events up to `resume` may have been missed.
    fn missed(&self, resume: Position) {
        let mut all: Vec<_> = self.senders.lock().drain().collect();
        // In order, so that a simulation repeats it.
        all.sort_unstable_by_key(|(session, _)| *session);
        for sender in all.into_iter().flat_map(|(_, senders)| senders) {
            let why = "a snapshot was installed on this node".to_owned();
            sender.end(ServiceError::EventsMissed { why, resume });
        }
    }
}

/// Subscribers to the events of one session.
#[derive(Debug, Default)]
pub(in crate::node) struct SessionEvents {
    /// To the end of the session: each of its streams is one.
    ends: Subscribers,
    /// To events of the session's holds that the session did not cause: breaks, hand-overs, expiry, recalls and
    /// requests to release.
    holds: Subscribers,
}

impl SessionEvents {
    /// Subscribes to the one event by which the session ends.
    pub(in crate::node) fn end(&self, session: SessionId) -> Events {
        self.ends.subscribe(session, 1)
    }

    /// Subscribes to events of the session's holds from now on. If the reader is too slow, or the session ends, the
    /// error of the subscription says so.
    pub(in crate::node) fn holds(&self, session: SessionId) -> Events {
        self.holds.subscribe(session, HOLD_NEWS_WAITING_MAX)
    }

    /// Sends the events of one entry to the subscribers of the sessions that they concern.
    pub(super) fn publish(&self, events: &[Event]) {
        // If a session ends with this entry, the subscriber to its holds gets only the end. The breaks of its holds are
        // earlier in the entry, and its client would treat them as breaks in a session that continues.
        let ends = events.iter().filter(|event| matches!(event.kind, EventKind::SessionEnded { .. }));
        ends.for_each(|event| self.send_to_holds(event));
        for event in events {
            self.send_to_ends(event);
            self.send_to_holds(event);
        }
    }

    /// Ends every subscription with an error, because events up to `resume` may have been missed.
    pub(super) fn missed(&self, resume: Position) {
        self.ends.missed(resume);
        self.holds.missed(resume);
    }

    /// Sends the end of a session to its subscribers and removes them.
    fn send_to_ends(&self, event: &Event) {
        let (EventKind::SessionEnded { .. }, Subject::Session(session)) = (&event.kind, &event.subject) else { return };
        for sender in self.ends.take(*session) {
            // The channel has space for this one event, so the send fails only if the receiver is gone.
            sender.try_send(event.clone());
        }
    }

    fn send_to_holds(&self, event: &Event) {
        let session = event.subject.session();
        match &event.kind {
            EventKind::Expired { .. }
            | EventKind::Broken { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::Recalled => self.holds.send(session, event),
            EventKind::HandedOver { was, .. } => {
                self.holds.send(was.session(), event);
                if session != was.session() {
                    self.holds.send(session, event);
                }
            }
            EventKind::SessionEnded { reason, why } => {
                let Some(session) = session else { return };
                for sender in self.holds.take(session) {
                    sender.end(Refusal::SessionEnded { session, reason: *reason, why: why.clone() }.into());
                }
            }
            EventKind::Queued { .. }
            | EventKind::Granted { .. }
            | EventKind::WaitEnded { .. }
            | EventKind::Released { .. }
            | EventKind::Upgraded { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened
            | EventKind::ValueChanged
            | EventKind::LimitChanged { .. }
            | EventKind::SessionOpened
            | EventKind::LeaderlessGap { .. } => {}
        }
    }
}

/// The error of a reader for which there was no space left for the event at `missed`.
fn too_slow(missed: Position) -> ServiceError {
    let why = format!("the reader has not taken {HOLD_NEWS_WAITING_MAX} events");
    ServiceError::EventsMissed { why, resume: missed.before_entry() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Claim, EndReason, FencingToken, LockKey, LockName, LogTime, Mode, Namespace, Principal, Reason, RequestId,
        WallTime,
    };

    fn session(number: u64) -> SessionId {
        SessionId::from_u64(number).expect("not zero")
    }

    fn event(subject: Subject, kind: EventKind) -> Event {
        let position = Position { index: 7, n: 0 };
        Event { position, at: LogTime(1), wall: WallTime(0), namespace: Some(Namespace::default()), subject, kind }
    }

    fn ended(number: u64) -> Event {
        let kind = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
        event(Subject::Session(session(number)), kind)
    }

    fn claim(number: u64) -> Claim {
        Claim::Request(RequestId { session: session(number), number: 1 })
    }

    fn lock() -> LockKey {
        LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") }
    }

    fn asked(number: u64) -> Event {
        let (by, why) = (Principal::default(), Reason::parse("mine").expect("legal"));
        let hold = Subject::hold(&lock(), claim(number), FencingToken::new(0, 1));
        event(hold, EventKind::RevokeRequested { by, why })
    }

    /// A revoke request reaches the holder's session and no other; a hand-over reaches both sides.
    #[tokio::test]
    async fn hold_events_reach_the_sessions_that_they_concern() {
        let events = SessionEvents::default();
        let (mut one, mut two) = (events.holds(session(1)), events.holds(session(2)));
        events.publish(std::slice::from_ref(&asked(1)));
        assert_eq!(one.next().await, Ok(asked(1)));
        let (from, token) = (FencingToken::new(0, 1), FencingToken::new(0, 2));
        let (was, by) = (claim(1), Principal::default());
        let handed = EventKind::HandedOver { was, from, mode: Mode::Exclusive, by };
        let handed = event(Subject::hold(&lock(), claim(2), token), handed);
        events.publish(std::slice::from_ref(&handed));
        assert_eq!((one.next().await, two.next().await), (Ok(handed.clone()), Ok(handed)));
    }

    /// The subscription of a slow reader ends with an error that says so, and the end of a session leaves no entry. Its
    /// subscriptions end with that end, which is no gap.
    #[tokio::test]
    async fn slow_readers_and_ended_sessions_are_forgotten() {
        let events = SessionEvents::default();
        let mut slow = events.holds(session(1));
        let mut reader = events.holds(session(2));
        for _ in 0..=HOLD_NEWS_WAITING_MAX {
            events.publish(std::slice::from_ref(&asked(1)));
        }
        for _ in 0..HOLD_NEWS_WAITING_MAX {
            slow.next().await.expect("a buffered event");
        }
        let missed = slow.next().await.expect_err("one had no space");
        let before = |resume: Position| resume < asked(1).position;
        assert!(matches!(missed, ServiceError::EventsMissed { resume, .. } if before(resume)), "{missed}");
        for number in [1, 2] {
            events.publish(std::slice::from_ref(&ended(number)));
        }
        let ended = Refusal::SessionEnded { session: session(2), reason: EndReason::Expired, why: None };
        assert_eq!(reader.next().await, Err(ended.into()));
        assert!(events.holds.senders.lock().is_empty());
    }

    /// A reader that has taken no event learns of a snapshot, too.
    #[tokio::test]
    async fn a_full_subscription_ends_with_its_error() {
        let events = SessionEvents::default();
        let mut reader = events.holds(session(1));
        for _ in 0..HOLD_NEWS_WAITING_MAX {
            events.publish(std::slice::from_ref(&asked(1)));
        }
        events.missed(Position { index: 9, n: 0 });
        for _ in 0..HOLD_NEWS_WAITING_MAX {
            assert_eq!(reader.next().await, Ok(asked(1)));
        }
        assert!(matches!(reader.next().await, Err(ServiceError::EventsMissed { .. })));
    }

    /// The end of one session reaches all its streams and no other session, and leaves no entry.
    #[tokio::test]
    async fn an_end_reaches_all_streams_of_its_session() {
        let ends = SessionEvents::default();
        let (mut one, mut two, mut other) = (ends.end(session(1)), ends.end(session(1)), ends.end(session(2)));
        ends.publish(std::slice::from_ref(&ended(1)));
        assert_eq!(one.next().await, Ok(ended(1)));
        assert_eq!(two.next().await, Ok(ended(1)));
        assert_eq!(ends.ends.senders.lock().len(), 1);
        ends.missed(Position { index: 9, n: 0 });
        let missed = other.next().await.expect_err("missed");
        assert!(matches!(missed, ServiceError::EventsMissed { resume: Position { index: 9, .. }, .. }), "{missed}");
        assert!(ends.ends.senders.lock().is_empty());
    }

    /// Subscribers to sessions that have already ended leave no entries, and a subscriber that remains is still
    /// notified.
    #[tokio::test]
    async fn subscribers_to_ended_sessions_leave_nothing() {
        let table = Subscribers::default();
        let mut stays = table.subscribe(session(1), 1);
        for number in 2..10_000 {
            drop(table.subscribe(session(number), 1));
        }
        let left = table.senders.lock().len();
        assert!(left <= 2 * SESSIONS_SWEPT_MIN, "{left} entries are left");
        table.missed(Position::default());
        assert!(matches!(stays.next().await, Err(ServiceError::EventsMissed { .. })));
    }
}
