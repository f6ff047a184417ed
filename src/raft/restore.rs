//! Turns a backup into the state of a new cluster, with a new identity and one voter.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;

use super::core::decoded_machine;
use super::dirty_records::DirtyRecords;
use super::error::damaged;
use super::payload::{self, Origin};
use super::types::{RaftMembership, StoredMembership, from_log_id};
use crate::codec;
use crate::machine::Machine;
use crate::model::{Member, Restoring};
use crate::storage::{Head, LogId, SnapshotFile};

/// The contents of a backup.
#[derive(Debug)]
pub struct Backup {
    /// Name of the cluster that was backed up.
    pub cluster: String,
    /// Id of that cluster.
    pub cluster_id: u128,
    /// The members at the time of the backup.
    pub members: BTreeMap<u64, Member>,
    machine: Machine,
}

/// The state of a new cluster for the directory of its first node.
#[derive(Debug)]
pub struct RestoredState {
    /// Describes the records.
    pub head: Head,
    /// All records, in the order of their keys.
    pub records: Vec<(Bytes, Bytes)>,
    /// The epoch of the new cluster's tokens.
    pub epoch: u16,
    /// How long no lock is granted after the restore, in milliseconds of log time.
    pub closed_ms: u64,
}

impl Backup {
    /// Reads a verified snapshot file.
    ///
    /// # Errors
    /// `InvalidData` if its records do not form a state, or do not name their cluster.
    pub fn read(file: &SnapshotFile) -> io::Result<Self> {
        let records = file.records()?.collect::<io::Result<Vec<_>>>()?;
        let head = file.head();
        let (origin, membership) = payload::decode_head_meta(&head.meta)?;
        let cluster = origin.ok_or_else(|| damaged("it does not name its cluster".to_owned()))?.cluster;
        let members = membership.nodes().map(|(id, member)| (*id, member.clone())).collect();
        let machine = decoded_machine(&records)?;
        let cluster_id = machine.cluster_id();
        let cluster_id = cluster_id.ok_or_else(|| damaged("its cluster had no id yet".to_owned()))?;
        Ok(Self { cluster, cluster_id, members, machine })
    }

    /// The number of sessions at the time of the backup.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.machine.totals().sessions
    }

    /// Returns the state of a new cluster with this one voter, at the log position after the backup's. Terms start from
    /// zero, and the nodes recognize each other by the new cluster's id.
    ///
    /// # Errors
    /// `InvalidInput` with an [`Invalid`](crate::model::Invalid) if no epoch is above the backup's. `InvalidData` if no
    /// membership can be made of the node and member.
    pub fn restored(mut self, restoring: Restoring, (node, member): (u64, Member)) -> io::Result<RestoredState> {
        let restored = self.machine.restore(restoring);
        restored.map_err(|refused| io::Error::new(io::ErrorKind::InvalidInput, refused))?;
        let id = LogId::new(0, 0, self.machine.applied());
        let voters = BTreeSet::from([node]);
        let membership = RaftMembership::new(vec![voters], BTreeMap::from([(node, member)]));
        let membership = membership.map_err(|error| damaged(format!("a membership: {error}")))?;
        let stored = StoredMembership::new(Some(from_log_id(id)), membership);
        let origin = Origin { cluster: self.cluster, peers_id: restoring.cluster_id };
        let records = self.machine.state().records();
        let mut records: Vec<_> = records.map(|(key, record)| codec::encode_record(&key, &record)).collect();
        records.sort();
        let dirty = DirtyRecords::of(&records);
        let head = Head {
            log_id: Some(id),
            records: dirty.records(),
            digest: dirty.digest(),
            meta: payload::encode_head_meta(&origin, &stored),
        };
        let (epoch, closed_ms) = (self.machine.epoch(), self.machine.closed_ms());
        Ok(RestoredState { head, records, epoch, closed_ms })
    }
}
