//! Who wants to know when a session ends. Every stream of a session does, and nothing else wakes it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::model::{Event, EventKind, Position, SessionId};
use crate::service::{Events, ServiceError};

type Told = mpsc::Sender<Result<Event, ServiceError>>;

/// Senders by session. An entry goes with its session, which ends sooner or later.
#[derive(Debug, Default)]
pub(super) struct SessionEnds(Mutex<HashMap<SessionId, Vec<Told>>>);

impl SessionEnds {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of the session's end, once.
    pub(super) fn subscribe(&self, session: SessionId) -> Events {
        let (sender, receiver) = mpsc::channel(1);
        let mut table = self.table();
        let told = table.entry(session).or_default();
        told.retain(|sender| !sender.is_closed());
        told.push(sender);
        Events::new(receiver)
    }

    /// Tells those whom the event concerns.
    pub(super) fn happened(&self, event: &Event) {
        let EventKind::SessionEnded { session, .. } = &event.kind else { return };
        for told in self.table().remove(session).into_iter().flatten() {
            // Room for one is there, and one is all that comes; a receiver that is gone does not care.
            told.try_send(Ok(event.clone())).ok();
        }
    }

    /// Ends may have been missed up to `resume`: everybody is told so, and subscribes anew.
    pub(super) fn missed(&self, resume: Position) {
        for (_, told) in self.table().drain() {
            for told in told {
                let why = "a snapshot was installed on this node".to_owned();
                told.try_send(Err(ServiceError::EventsMissed { why, resume })).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndReason, LogTime, Namespace, WallTime};

    fn ended(session: SessionId) -> Event {
        Event {
            position: Position { index: 7, n: 0 },
            at: LogTime(1),
            wall: WallTime(0),
            namespace: Some(Namespace::default()),
            kind: EventKind::SessionEnded { session, reason: EndReason::Expired },
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
        assert_eq!(ends.table().len(), 1);
        ends.missed(Position { index: 9, n: 0 });
        let missed = other.next().await.expect_err("missed");
        assert!(matches!(missed, ServiceError::EventsMissed { resume: Position { index: 9, .. }, .. }), "{missed}");
        assert!(ends.table().is_empty());
    }
}
