//! The event hub: a bounded window of recent events, read by any number of subscribers at their own pace.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;

use super::session_events::SessionEvents;
use crate::limits;
use crate::model::{Event, EventKind, Position};
use crate::mutex::Mutex;
use crate::service::{EventSender, Events, Scope, ServiceError, Subscription};

/// The newest events of a node.
///
/// - In order of their positions, without a gap between `floor` and the newest.
/// - Each subscriber has its own cursor. One that is too slow falls below the floor and gets an error that names the
///   position to continue from.
#[derive(Debug, Default)]
pub(in crate::node) struct Hub {
    window: Mutex<Window>,
    newest: watch::Sender<Position>,
    pub(in crate::node) of_sessions: SessionEvents,
}

#[derive(Debug, Default)]
struct Window {
    /// The events of one entry each; none is empty.
    entries: VecDeque<Arc<[Event]>>,
    /// Number of events in all entries.
    events: usize,
    floor: Position,
}

impl Window {
    /// Adds the events of an entry, and drops the oldest entries that exceed the limit.
    fn push(&mut self, events: Arc<[Event]>) {
        self.events += events.len();
        self.entries.push_back(events);
        while let Some(oldest) = self.entries.front()
            && limits::EVENTS_KEPT_MAX <= self.events - oldest.len()
        {
            self.events -= oldest.len();
            self.floor = oldest.last().map_or(self.floor, |event| event.position);
            self.entries.pop_front();
        }
    }

    /// Returns an error if events after this position are no longer kept.
    fn keeps_after(&self, cursor: Position) -> Result<(), ServiceError> {
        if cursor < self.floor { Err(missed(self.floor)) } else { Ok(()) }
    }

    /// Returns the oldest entries with events after a position, [`BATCH`] entries at most.
    fn after(&self, cursor: Position) -> Result<Vec<Arc<[Event]>>, ServiceError> {
        self.keeps_after(cursor)?;
        let newer = |event: &&Event| cursor < event.position;
        let seen = self.entries.partition_point(|events| !events.last().as_ref().is_some_and(newer));
        Ok(self.entries.range(seen..).take(BATCH).cloned().collect())
    }
}

/// The bound on one read of a subscriber: most entries that it takes out of the window, and most events of them that it
/// copies. Also the capacity of its channel.
const BATCH: usize = 256;

impl Hub {
    /// Adds the events of one entry.
    pub(in crate::node) fn publish(&self, events: &Arc<[Event]>) {
        let Some(last) = events.last() else { return };
        let newest = last.position;
        self.window.lock().push(Arc::clone(events));
        self.of_sessions.publish(events);
        self.newest.send_replace(newest);
    }

    /// Raises the floor after a state was loaded, at the start or from a snapshot: this hub never saw the events up to
    /// the newest event of that state. A subscriber that has received that event misses nothing.
    pub(in crate::node) fn skip_to(&self, floor: Position) {
        *self.window.lock() = Window { floor, ..Window::default() };
        self.of_sessions.missed(floor);
        self.newest.send_replace(floor);
    }

    /// Returns the position of the newest known event: a subscriber from here misses nothing.
    fn end(&self) -> Position {
        let window = self.window.lock();
        window.entries.back().and_then(|events| events.last()).map_or(window.floor, |event| event.position)
    }

    /// Returns an error if events after this position are no longer kept.
    pub(in crate::node) fn keeps_after(&self, cursor: Position) -> Result<(), ServiceError> {
        self.window.lock().keeps_after(cursor)
    }

    /// Returns the next events of a subscriber, and the position after which it continues. The window is locked only
    /// while a few entries are taken from it, because `apply` waits for the lock. The events are filtered afterwards.
    fn after(&self, cursor: Position, scope: &Scope) -> Result<(Vec<Event>, Position), ServiceError> {
        let entries = self.window.lock().after(cursor)?;
        let (mut end, mut found) = (cursor, Vec::new());
        let events = entries.iter().flat_map(|events| events.iter());
        for event in events.skip_while(|event| event.position <= cursor).take(limits::EVENTS_WAITING_MAX) {
            end = event.position;
            if concerns(event, scope) {
                found.push(event.clone());
            }
            if found.len() == BATCH {
                break;
            }
        }
        Ok((found, end))
    }

    /// Creates a subscription and the task that feeds it, which the caller must run. The error of `cut_off`, of a
    /// node that has known of no leader for long, ends it.
    pub(in crate::node) fn subscribe<C: Future<Output = ServiceError>>(
        self: &Arc<Self>,
        subscription: Subscription,
        cut_off: C,
    ) -> (Events, impl Future<Output = ()> + use<C>) {
        let (sender, events) = Events::channel(BATCH);
        let cursor = subscription.after.unwrap_or_else(|| self.end());
        let feed = Arc::clone(self).feed(subscription.scope, cursor, sender, cut_off);
        (events, feed)
    }

    async fn feed(
        self: Arc<Self>,
        scope: Scope,
        mut cursor: Position,
        sender: EventSender,
        cut_off: impl Future<Output = ServiceError>,
    ) {
        let (mut newest, mut cut_off) = (self.newest.subscribe(), pin!(cut_off));
        loop {
            newest.borrow_and_update();
            let (events, end) = match self.after(cursor, &scope) {
                Ok(found) => found,
                Err(missed) => {
                    sender.send(Err(missed)).await;
                    return;
                }
            };
            for event in events {
                if !sender.send(Ok(event)).await {
                    return;
                }
            }
            if cursor != end {
                cursor = end;
                continue;
            }
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return },
                why = &mut cut_off => {
                    sender.send(Err(why)).await;
                    return;
                }
                () = sender.closed() => return,
            }
        }
    }
}

/// The error of a subscriber that is too far behind.
fn missed(resume: Position) -> ServiceError {
    ServiceError::EventsMissed { why: "they are no longer kept on this node".to_owned(), resume }
}

fn concerns(event: &Event, scope: &Scope) -> bool {
    match scope {
        Scope::Session(id) | Scope::SessionEnd(id) | Scope::Holds(id) => {
            // The subject of a hand-over is the successor.
            let was = if let EventKind::HandedOver { was, .. } = &event.kind { was.session() } else { None };
            [event.subject.session(), was].contains(&Some(*id))
        }
        Scope::Namespace { namespace, prefix } => {
            let here = event.namespace.as_ref().is_none_or(|found| found == namespace);
            let named = event.subject.lock().is_none_or(|lock| lock.name.as_str().starts_with(prefix.as_str()));
            here && named
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;

    use super::*;
    use crate::model::{
        Claim, EndReason, FencingToken, LockKey, LockName, LogTime, Mode, Namespace, Principal, Reason, Refusal,
        RequestId, SessionId, Subject, WallTime,
    };

    fn event(index: u64, n: u32) -> Event {
        Event {
            position: Position { index, n },
            at: LogTime(index),
            wall: WallTime(0),
            namespace: None,
            subject: Subject::Cluster,
            kind: EventKind::LeaderlessGap { gap_ms: index },
        }
    }

    fn everything(after: Option<Position>) -> Subscription {
        let scope = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
        Subscription { scope, after, cluster_id: None }
    }

    /// A subscriber that resumes after a position gets the later events once each and in order, and then new events.
    #[tokio::test]
    async fn a_subscription_resumes_without_loss_or_repetition() {
        let hub = Arc::new(Hub::default());
        hub.publish(&[event(1, 0), event(1, 1)].into());
        hub.publish(&[event(2, 0)].into());
        let (mut events, feed) = hub.subscribe(everything(Some(Position { index: 1, n: 0 })), pending());
        let feed = tokio::spawn(feed);
        assert_eq!(events.next().await, Ok(event(1, 1)));
        assert_eq!(events.next().await, Ok(event(2, 0)));
        hub.publish(&[event(5, 0)].into());
        assert_eq!(events.next().await, Ok(event(5, 0)));
        drop(events);
        feed.await.expect("the feed ends with its subscriber");
    }

    /// One entry with more events than a subscriber takes at once, and many entries with few events, arrive complete
    /// and in order.
    #[tokio::test]
    async fn large_entries_and_many_entries_arrive_whole() {
        let hub = Arc::new(Hub::default());
        let large = limits::EVENTS_WAITING_MAX as u32 + BATCH as u32;
        hub.publish(&(0..large).map(|n| event(1, n)).collect());
        let many = 2 + 3 * BATCH as u64;
        (2..many).for_each(|index| hub.publish(&[event(index, 0), event(index, 1)].into()));
        let (mut events, feed) = hub.subscribe(everything(Some(Position::default())), pending());
        let feed = tokio::spawn(feed);
        let expected = (0..large).map(|n| (1, n)).chain((2..many).flat_map(|index| [(index, 0), (index, 1)]));
        for (index, n) in expected.filter(|at| *at != (0, 0)) {
            assert_eq!(events.next().await, Ok(event(index, n)));
        }
        drop(events);
        feed.await.expect("the feed ends with its subscriber");
    }

    /// The break of a hold is reported to its session, unless the session ends with the same entry: its client would
    /// believe that the session continues.
    #[tokio::test]
    async fn the_end_of_a_session_hides_the_breaks_of_its_holds() {
        let hub = Hub::default();
        let session = SessionId::from_u64(7).expect("legal");
        let broken = |index| {
            let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
            let (by, why) = (Principal::default(), Reason::parse("stuck").expect("legal"));
            let claim = Claim::Request(RequestId { session, number: 1 });
            let subject = Subject::hold(&lock, claim, FencingToken::new(0, 1));
            Event { subject, kind: EventKind::Broken { by, why, held_ms: 1 }, ..event(index, 0) }
        };
        let mut holds = hub.of_sessions.holds(session);
        hub.publish(&[broken(1)].into());
        assert_eq!(holds.next().await, Ok(broken(1)));
        let why = Some(Reason::parse("stuck").expect("legal"));
        let ended = EventKind::SessionEnded { reason: EndReason::Broken, why: why.clone() };
        let refusal = Refusal::SessionEnded { session, reason: EndReason::Broken, why: why.clone() };
        let end = Event { subject: Subject::Session(session), kind: ended.clone(), ..event(2, 1) };
        let mut ends = hub.of_sessions.end(session);
        hub.publish(&[broken(2), end].into());
        assert_eq!(holds.next().await, Err(refusal.into()));
        assert_eq!(ends.next().await.map(|event| event.kind), Ok(ended));
    }

    /// A watch of a session shows that its hold was handed over, and so does a watch of the successor.
    #[test]
    fn a_watch_of_a_session_shows_its_hand_over() {
        let [before, next, other] = [7, 8, 9].map(|id| SessionId::from_u64(id).expect("legal"));
        let claim = |session| Claim::Request(RequestId { session, number: 1 });
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
        let (was, from, by) = (claim(before), FencingToken::new(0, 1), Principal::default());
        let subject = Subject::hold(&lock, claim(next), FencingToken::new(0, 2));
        let handed =
            Event { subject, kind: EventKind::HandedOver { was, from, mode: Mode::Exclusive, by }, ..event(1, 0) };
        for (session, seen) in [(before, true), (next, true), (other, false)] {
            assert_eq!(concerns(&handed, &Scope::Session(session)), seen, "{session}");
        }
    }

    /// On a node that has seen the log from its first entry, the first position is valid like every other.
    #[tokio::test]
    async fn the_first_position_is_a_valid_start() {
        let hub = Arc::new(Hub::default());
        hub.publish(&[event(1, 0)].into());
        let (mut events, feed) = hub.subscribe(everything(Some(Position::default())), pending());
        let feed = tokio::spawn(feed);
        assert_eq!(events.next().await, Ok(event(1, 0)));
        drop(events);
        feed.await.expect("the feed ends with its subscriber");
    }

    /// A subscriber below the window's floor gets an error with the floor instead of a gap.
    #[tokio::test]
    async fn what_is_no_longer_kept_is_an_error_that_names_the_floor() {
        let hub = Arc::new(Hub::default());
        hub.publish(&[event(1, 0)].into());
        hub.skip_to(Position { index: 9, n: 3 });
        let (mut events, feed) = hub.subscribe(everything(Some(Position { index: 1, n: 0 })), pending());
        let feed = tokio::spawn(feed);
        let missed = events.next().await.expect_err("missed");
        assert!(matches!(missed, ServiceError::EventsMissed { resume: Position { index: 9, n: 3 }, .. }), "{missed}");
        feed.await.expect("ends");
    }

    /// More events are published than are kept. A subscriber that has not received the dropped ones gets an error with
    /// the newest of them, and one that has received them continues.
    #[tokio::test]
    async fn a_subscriber_that_falls_out_of_the_window_is_notified() {
        let hub = Arc::new(Hub::default());
        let last = limits::EVENTS_KEPT_MAX as u64 + 2;
        (1..=last).for_each(|index| hub.publish(&[event(index, 0)].into()));
        assert_eq!(hub.window.lock().events, limits::EVENTS_KEPT_MAX);
        let floor = Position { index: 2, n: 0 };
        for behind in [Position::default(), Position { index: 1, n: 0 }] {
            assert!(hub.keeps_after(behind).is_err());
            let (mut events, feed) = hub.subscribe(everything(Some(behind)), pending());
            let feed = tokio::spawn(feed);
            let missed = events.next().await.expect_err("missed");
            assert!(matches!(missed, ServiceError::EventsMissed { resume, .. } if resume == floor), "{missed}");
            feed.await.expect("ends");
        }
        let (mut events, feed) = hub.subscribe(everything(Some(floor)), pending());
        let feed = tokio::spawn(feed);
        assert_eq!(events.next().await, Ok(event(3, 0)));
        drop(events);
        feed.await.expect("the feed ends with its subscriber");
    }

    /// A snapshot may skip events of holds and ends of sessions: each of their subscribers gets an error that names the
    /// position to continue from, at once and without further events.
    #[tokio::test]
    async fn a_skip_ends_the_subscriptions_to_holds_and_ends() {
        let hub = Hub::default();
        let session = SessionId::from_u64(7).expect("legal");
        let mut subscribed = [hub.of_sessions.holds(session), hub.of_sessions.end(session)];
        let floor = Position { index: 9, n: 3 };
        hub.skip_to(floor);
        for events in &mut subscribed {
            let missed = events.next().now_or_never().expect("at once").expect_err("missed");
            assert!(matches!(missed, ServiceError::EventsMissed { resume, .. } if resume == floor), "{missed}");
            assert!(matches!(events.next().now_or_never(), Some(Err(_))), "the subscription ends");
        }
    }

    /// A subscriber that has received the newest event of an installed snapshot has missed nothing, and continues.
    #[tokio::test]
    async fn a_complete_subscriber_survives_a_snapshot() {
        let hub = Arc::new(Hub::default());
        hub.publish(&[event(1, 0), event(1, 1)].into());
        let (mut events, feed) = hub.subscribe(everything(Some(Position { index: 1, n: 0 })), pending());
        let feed = tokio::spawn(feed);
        assert_eq!(events.next().await, Ok(event(1, 1)));
        hub.skip_to(Position { index: 1, n: 1 });
        hub.publish(&[event(9, 0)].into());
        assert_eq!(events.next().await, Ok(event(9, 0)));
        drop(events);
        feed.await.expect("the feed ends with its subscriber");
    }
}
