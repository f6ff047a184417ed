//! Subscribers by session: nothing that happens to other sessions wakes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::SESSIONS_SWEPT_MIN;
use crate::model::{Position, SessionId};
use crate::service::{EventSender, Events, ServiceError};

/// Senders by session.
///
/// An entry goes with its session. Who subscribes to a session that has ended already leaves one behind that no end
/// will ever take away: such entries go, once their subscribers have, whenever the table has doubled.
#[derive(Debug, Default)]
pub(super) struct SessionTable {
    told: Mutex<HashMap<SessionId, Vec<EventSender>>>,
    /// Entries that were left when it was last swept.
    swept: AtomicUsize,
}

impl SessionTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<EventSender>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber with room for so many events that it has not read.
    pub(super) fn subscribe(&self, session: SessionId, room: usize) -> Events {
        let (sender, events) = Events::channel(room);
        let mut table = self.lock();
        if 2 * self.swept.load(Ordering::Relaxed).max(SESSIONS_SWEPT_MIN) <= table.len() {
            table.retain(|_, told| told.iter().any(|sender| !sender.is_closed()));
            self.swept.store(table.len(), Ordering::Relaxed);
        }
        let told = table.entry(session).or_default();
        told.retain(|sender| !sender.is_closed());
        told.push(sender);
        events
    }

    /// Something may have been missed up to `resume`: everybody is told so, and subscribes anew.
    pub(super) fn missed(&self, resume: Position) {
        let mut all: Vec<_> = self.lock().drain().collect();
        all.sort_unstable_by_key(|(session, _)| *session);
        for told in all.into_iter().flat_map(|(_, told)| told) {
            let why = "a snapshot was installed on this node".to_owned();
            told.try_send(Err(ServiceError::EventsMissed { why, resume }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subscribers to sessions that have ended already come and go: nothing of them is left, and those who stay are told.
    #[tokio::test]
    async fn subscribers_to_ended_sessions_leave_nothing() {
        let table = SessionTable::default();
        let session = |number| SessionId::from_u64(number).expect("not zero");
        let mut stays = table.subscribe(session(1), 1);
        for number in 2..10_000 {
            drop(table.subscribe(session(number), 1));
        }
        let left = table.lock().len();
        assert!(left <= 2 * SESSIONS_SWEPT_MIN, "{left} entries are left");
        table.missed(Position::default());
        assert!(matches!(stays.next().await, Err(ServiceError::EventsMissed { .. })));
    }
}
