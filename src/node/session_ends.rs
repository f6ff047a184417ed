//! Who wants to know when a session ends. Every stream of a session does, and nothing else wakes it.

use super::session_table::SessionTable;
use crate::model::{Event, EventKind, Position, SessionId, Subject};
use crate::service::Events;

/// Subscribers to the end of a session.
#[derive(Debug, Default)]
pub(super) struct SessionEnds(SessionTable);

impl SessionEnds {
    /// Tells of the session's end, once.
    pub(super) fn subscribe(&self, session: SessionId) -> Events {
        self.0.subscribe(session, 1)
    }

    /// Tells those whom the event concerns.
    pub(super) fn happened(&self, event: &Event) {
        let (EventKind::SessionEnded { .. }, Subject::Session(session)) = (&event.kind, &event.subject) else { return };
        for told in self.0.lock().remove(session).into_iter().flatten() {
            // Room for one is there, and one is all that comes; a receiver that is gone does not care.
            told.try_send(Ok(event.clone()));
        }
    }

    /// Ends may have been missed up to `resume`: everybody is told so, and subscribes anew.
    pub(super) fn missed(&self, resume: Position) {
        self.0.missed(resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndReason, LogTime, Namespace, WallTime};
    use crate::service::ServiceError;

    fn ended(session: SessionId) -> Event {
        Event {
            position: Position { index: 7, n: 0 },
            at: LogTime(1),
            wall: WallTime(0),
            namespace: Some(Namespace::default()),
            subject: Subject::Session(session),
            kind: EventKind::SessionEnded { reason: EndReason::Expired, why: None },
        }
    }

    fn session(number: u64) -> SessionId {
        SessionId::from_u64(number).expect("not zero")
    }

    /// The end of one session reaches all its streams and nobody else's, and nothing is kept of it.
    #[tokio::test]
    async fn an_end_reaches_those_whom_it_concerns() {
        let ends = SessionEnds::default();
        let (mut one, mut two, mut other) =
            (ends.subscribe(session(1)), ends.subscribe(session(1)), ends.subscribe(session(2)));
        ends.happened(&ended(session(1)));
        assert_eq!(one.next().await, Ok(ended(session(1))));
        assert_eq!(two.next().await, Ok(ended(session(1))));
        assert_eq!(ends.0.lock().len(), 1);
        ends.missed(Position { index: 9, n: 0 });
        let missed = other.next().await.expect_err("missed");
        assert!(matches!(missed, ServiceError::EventsMissed { resume: Position { index: 9, .. }, .. }), "{missed}");
        assert!(ends.0.lock().is_empty());
    }
}
