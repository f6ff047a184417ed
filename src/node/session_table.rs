//! Subscribers by session: nothing that happens to other sessions wakes them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::model::{Event, Position, SessionId};
use crate::service::{Events, ServiceError};

/// Where a subscriber is told.
type Told = mpsc::Sender<Result<Event, ServiceError>>;

/// Senders by session. An entry goes with its session, which ends sooner or later.
#[derive(Debug, Default)]
pub(super) struct SessionTable(Mutex<HashMap<SessionId, Vec<Told>>>);

impl SessionTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber with room for so many events that it has not read.
    pub(super) fn subscribe(&self, session: SessionId, room: usize) -> Events {
        let (sender, receiver) = mpsc::channel(room);
        let mut table = self.lock();
        let told = table.entry(session).or_default();
        told.retain(|sender| !sender.is_closed());
        told.push(sender);
        Events::new(receiver)
    }

    /// Something may have been missed up to `resume`: everybody is told so, and subscribes anew.
    pub(super) fn missed(&self, resume: Position) {
        for told in self.lock().drain().flat_map(|(_, told)| told) {
            let why = "a snapshot was installed on this node".to_owned();
            told.try_send(Err(ServiceError::EventsMissed { why, resume })).ok();
        }
    }
}
