//! Which disk belongs to which node, and what happens to a node whose disk is another one.
//!
//! A voter that lost its data directory has forgotten what it acknowledged and for whom it voted. Under its old id it could
//! vote twice, and elect a leader that lacks what was acknowledged. The replicated state knows each voter by the disk that
//! it announced first; every call between nodes names the sender's disk and the one by which it knows the receiver.
//!
//! What remains: a node is known by its disk only to those that have applied its announcement. A directory that is lost
//! before that, in the first moments of a cluster, is not found out by them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::machine::Machine;

/// The disks that this node knows, apart from the machine: a heartbeat must not wait for what is being applied.
#[derive(Default)]
pub(super) struct DiskIds(Mutex<BTreeMap<u64, u128>>);

impl DiskIds {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, u128>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the machine knows. A disk never changes and no node is forgotten, so an equal number is the same.
    pub(super) fn follow(&self, machine: &Machine) {
        let mut table = self.table();
        if table.len() != machine.announcements().len() {
            *table = machine.announcements().map(|told| (told.node, told.disk)).collect();
        }
    }

    /// The disk by which this node is known; `None` before its announcement was applied here.
    pub(super) fn of(&self, node: u64) -> Option<u128> {
        self.table().get(&node).copied()
    }

    /// Whether the node is known by another disk than this one.
    pub(super) fn differs(&self, node: u64, disk: u128) -> bool {
        self.of(node).is_some_and(|known| known != disk)
    }
}

/// What a node with another disk is told, and says when it stops.
pub(super) fn wiped(node: u64) -> String {
    format!(
        "node {node} has another disk than the one by which this cluster knows it: its data directory was lost and made \
         anew, so what it had acknowledged is gone. It must not vote or count as node {node}. Put its old directory back, \
         or give the new disk a new node id: lockkeeper member add"
    )
}
