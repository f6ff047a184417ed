//! What the cluster's nodes said of themselves, and the feature level that follows from it.

use super::{Machine, RecordKey};
use crate::limits;
use crate::model::{Announcement, Outcome, RaiseFeatures, Refusal};

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
        self.mark_dirty(RecordKey::Node(told.node));
        Outcome::Done
    }

    /// The cluster's feature level: no command above it is proposed.
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.globals.feature_level.max(limits::FEATURE_LEVEL_MIN)
    }

    /// Only to what every voter supports, and never down.
    pub(super) fn raise_features(&mut self, raise: &RaiseFeatures) -> Outcome {
        for node in &raise.voters {
            let supports = self.nodes.get(node).map(|told| told.features);
            if supports.is_none_or(|level| level < raise.to) {
                return Outcome::Refused(Refusal::FeaturesUnsupported { to: raise.to, node: *node, supports });
            }
        }
        self.globals.feature_level = self.globals.feature_level.max(raise.to);
        Outcome::Done
    }
}
