//! Who wants to know what becomes of a session's holds by others. Nothing else wakes it, whatever else happens.

use super::session_table::SessionTable;
use crate::limits;
use crate::model::{Event, EventKind, Position, SessionId};
use crate::service::Events;

/// Subscribers to what becomes of a session's holds.
#[derive(Debug, Default)]
pub(super) struct HoldNews(SessionTable);

impl HoldNews {
    /// Tells what becomes of the session's holds, from now on. A reader that is too slow is cut.
    pub(super) fn subscribe(&self, session: SessionId) -> Events {
        self.0.subscribe(session, limits::HOLD_NEWS_WAITING_MAX)
    }

    /// Tells those whom the event concerns.
    pub(super) fn happened(&self, event: &Event) {
        let session = event.subject.session();
        match &event.kind {
            EventKind::Expired { .. }
            | EventKind::Broken { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::Recalled => {
                self.tell(session, event);
            }
            EventKind::HandedOver { was, .. } => {
                self.tell(was.session(), event);
                if session != was.session() {
                    self.tell(session, event);
                }
            }
            EventKind::SessionEnded { .. } => {
                if let Some(session) = session {
                    self.0.lock().remove(&session);
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

    fn tell(&self, session: Option<SessionId>, event: &Event) {
        let Some(session) = session else { return };
        let mut table = self.0.lock();
        if let Some(told) = table.get_mut(&session) {
            // Who has no room loses its sender: its subscription ends there, and it subscribes and looks anew.
            told.retain(|sender| sender.try_send(Ok(event.clone())));
        }
    }

    /// Something may have been missed up to `resume`: everybody is told so, and subscribes anew.
    pub(super) fn missed(&self, resume: Position) {
        self.0.missed(resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Claim, FencingToken, LockKey, LockName, LogTime, Mode, Namespace, Principal, Reason, RequestId, Subject,
        WallTime,
    };
    use crate::service::ServiceError;

    fn session(number: u64) -> SessionId {
        SessionId::from_u64(number).expect("not zero")
    }

    fn claim(number: u64) -> Claim {
        Claim::Request(RequestId { session: session(number), number: 1 })
    }

    fn event(subject: Subject, kind: EventKind) -> Event {
        let position = Position { index: 7, n: 0 };
        Event { position, at: LogTime(1), wall: WallTime(0), namespace: Some(Namespace::default()), subject, kind }
    }

    fn lock() -> LockKey {
        LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") }
    }

    fn asked(number: u64) -> Event {
        let (by, why) = (Principal::default(), Reason::parse("mine").expect("legal"));
        let hold = Subject::hold(&lock(), claim(number), FencingToken::new(0, 1));
        event(hold, EventKind::RevokeRequested { by, why })
    }

    /// A request to a holder reaches its session and nobody else's; a hand-over reaches both sides.
    #[tokio::test]
    async fn news_reach_those_whom_they_concern() {
        let news = HoldNews::default();
        let (mut one, mut two) = (news.subscribe(session(1)), news.subscribe(session(2)));
        news.happened(&asked(1));
        assert_eq!(one.next().await, Ok(asked(1)));
        let (from, token) = (FencingToken::new(0, 1), FencingToken::new(0, 2));
        let (was, by) = (claim(1), Principal::default());
        let handed = EventKind::HandedOver { was, from, mode: Mode::Exclusive, by };
        let handed = event(Subject::hold(&lock(), claim(2), token), handed);
        news.happened(&handed);
        assert_eq!((one.next().await, two.next().await), (Ok(handed.clone()), Ok(handed)));
    }

    /// A reader that is too slow is cut, and the end of a session leaves nothing behind.
    #[tokio::test]
    async fn slow_readers_and_ended_sessions_are_forgotten() {
        let news = HoldNews::default();
        let mut slow = news.subscribe(session(1));
        let _gone = news.subscribe(session(2));
        for _ in 0..=limits::HOLD_NEWS_WAITING_MAX {
            news.happened(&asked(1));
        }
        for _ in 0..limits::HOLD_NEWS_WAITING_MAX {
            slow.next().await.expect("what there was room for");
        }
        assert_eq!(slow.next().await, Err(ServiceError::Stopping));
        let reason = crate::model::EndReason::Expired;
        for number in [1, 2] {
            let ended = EventKind::SessionEnded { reason, why: None };
            news.happened(&event(Subject::Session(session(number)), ended));
        }
        assert!(news.0.lock().is_empty());
    }
}
