//! Events: what the entry that is being applied did, in order, each with its position.

use super::Machine;
use crate::model::{Event, EventKind, Namespace, Position};

impl Machine {
    /// Notes that something happened. `None` is for what concerns the whole cluster.
    pub(super) fn event(&mut self, namespace: Option<Namespace>, kind: EventKind) {
        let n = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let position = Position { index: self.globals.applied, n };
        self.events.push(Event { position, at: self.globals.now, wall: self.globals.wall, namespace, kind });
    }
}
