//! Events: what the entry that is being applied did, in order, each with its position.

use super::Machine;
use crate::model::{Event, EventKind, Namespace, Position, Subject};

impl Machine {
    /// Notes that something happened. `None` is for what concerns the whole cluster.
    pub(super) fn event(&mut self, namespace: Option<Namespace>, subject: Subject, kind: EventKind) {
        let event = self.next_event(namespace, subject, kind);
        self.events.push(event);
    }

    /// The next event, not noted yet.
    pub(super) fn next_event(&self, namespace: Option<Namespace>, subject: Subject, kind: EventKind) -> Event {
        let n = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let position = Position { index: self.globals.applied, n };
        Event { position, at: self.globals.now, wall: self.globals.wall, namespace, subject, kind }
    }
}
