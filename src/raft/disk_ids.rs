//! The disk id of each node, and the errors for a node whose disk id differs.
//!
//! A voter that lost its data directory has lost its acknowledged entries and its vote. Under its old id it could vote
//! twice in one term, and elect a leader that lacks acknowledged entries. So the replicated state stores the disk id
//! that each voter announced first. Every call between nodes contains the sender's disk id, and the disk id by which
//! the sender knows the receiver.
//!
//! One gap remains: a node knows the disk id of another node only after it has applied the announcement. If a directory
//! is lost before that, shortly after the cluster was founded, no node detects it.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::mutex::Mutex;

/// The disk ids that this node knows. They are separate from the machine, so that a heartbeat does not wait for entries
/// that are being applied.
#[derive(Default)]
pub(super) struct DiskIds(Mutex<BTreeMap<u64, u128>>);

impl DiskIds {
    /// Copies the disk ids that the machine knows. Disk ids never change and are never removed, so an equal count means
    /// equal contents.
    pub(super) fn follow(&self, machine: &Machine) {
        let mut table = self.0.lock();
        if table.len() != machine.announcements().len() {
            *table = machine.announcements().map(|announcement| (announcement.node, announcement.disk)).collect();
        }
    }

    /// The disk id by which the node is known; `None` before its announcement was applied here.
    pub(super) fn of(&self, node: u64) -> Option<u128> {
        self.0.lock().get(&node).copied()
    }

    /// Whether the node is known by a disk id other than `disk`.
    pub(super) fn differs(&self, node: u64, disk: u128) -> bool {
        self.of(node).is_some_and(|known| known != disk)
    }
}

/// The error that a node with another disk id gets. The node stops with it.
pub(super) fn wiped(node: u64) -> String {
    format!(
        "node {node} has another disk than the one by which this cluster knows it: its data directory was lost and \
         created again, so its acknowledged entries are gone. It must not vote or count as node {node}. Restore its old \
         directory, or give the new disk a new node id: lockkeeper member add ID"
    )
}
