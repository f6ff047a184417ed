//! What the cluster's nodes said of themselves.

use super::{Machine, RecordKey};
use crate::model::{Announcement, Outcome, Refusal};

impl Machine {
    /// What this node last announced.
    #[must_use]
    pub fn announced(&self, node: u64) -> Option<&Announcement> {
        self.nodes.get(&node)
    }

    /// Everything that nodes announced, in the order of their ids. A node that has announced itself stays.
    pub fn announcements(&self) -> impl ExactSizeIterator<Item = &Announcement> {
        self.nodes.values()
    }

    /// The first announcement fixes the node's disk for ever; the rest of it may change.
    pub(super) fn announce(&mut self, told: &Announcement) -> Outcome {
        if self.nodes.get(&told.node).is_some_and(|known| known.disk != told.disk) {
            return Outcome::Refused(Refusal::OtherDisk { node: told.node });
        }
        self.nodes.insert(told.node, told.clone());
        self.touch(RecordKey::Node(told.node));
        Outcome::Ticked
    }
}
