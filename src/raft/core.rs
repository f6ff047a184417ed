//! The machine and what Raft stores with it: the position of the newest applied entry, the membership and the changed
//! records.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::dirty_records::DirtyRecords;
use super::error::damaged;
use super::payload::{self, Origin};
use super::types::{Proposal, RaftEntry, RaftPayload, StoredMembership, to_log_id};
use crate::codec;
use crate::limits::{DIGEST_MS, FOLD_RECORDS};
use crate::machine::{Applied, Machine};
use crate::model::DigestClaim;
use crate::storage::{Head, LogId};

/// The state after the entry `last` was applied.
pub(super) struct Core {
    /// The cluster that the state belongs to.
    origin: Origin,
    pub(super) machine: Machine,
    pub(super) dirty: DirtyRecords,
    pub(super) last: Option<LogId>,
    pub(super) membership: StoredMembership,
    /// Entries applied since the last checkpoint.
    pub(super) unwritten: u64,
}

impl Core {
    pub(super) fn load(origin: &Origin, head: &Head, records: &[(Bytes, Bytes)]) -> io::Result<Self> {
        let (found, membership) = payload::decode_head_meta(&head.meta)?;
        if let Some(found) = found.filter(|found| found != origin) {
            let (theirs, ours) = (found.peers_id, origin.peers_id);
            return Err(damaged(format!(
                "a state of another cluster ({}, peers_id {theirs:032x}); this is {ours:032x}",
                found.cluster
            )));
        }
        let machine = decoded_machine(records)?;
        let dirty = DirtyRecords::of(records);
        if dirty.digest() != head.digest || dirty.records() != head.records {
            return Err(damaged("the records of the state are not those that their head announces".to_owned()));
        }
        Ok(Self { origin: origin.clone(), machine, dirty, last: head.log_id, membership, unwritten: 0 })
    }

    /// Returns the head of the current state. The caller must have called `fold` on the dirty records before.
    pub(super) fn head(&self) -> Head {
        Head {
            log_id: self.last,
            records: self.dirty.records(),
            digest: self.dirty.digest(),
            meta: payload::encode_head_meta(&self.origin, &self.membership),
        }
    }

    pub(super) fn has_member(&self, node: u64) -> bool {
        self.membership.get_node(&node).is_some()
    }

    /// Whether the node was removed: the membership is known and does not contain the node.
    pub(super) fn has_lost(&self, node: u64) -> bool {
        self.membership.nodes().next().is_some() && !self.has_member(node)
    }

    pub(super) fn apply(&mut self, entry: RaftEntry) -> io::Result<Option<Arc<Applied>>> {
        let id = to_log_id(&entry.log_id);
        let period = self.machine.now().0 / DIGEST_MS;
        let applied = match entry.payload {
            RaftPayload::Blank => {
                self.machine.skip(id.index);
                None
            }
            RaftPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                self.machine.skip(id.index);
                None
            }
            RaftPayload::Normal(proposal) => Some(Arc::new(self.decide(id, proposal)?)),
        };
        self.last = Some(id);
        self.unwritten += 1;
        if period != self.machine.now().0 / DIGEST_MS {
            self.dirty.fold(&mut self.machine);
            self.dirty.remember(id.index);
        } else if FOLD_RECORDS <= self.machine.state().dirty_records() {
            self.dirty.fold(&mut self.machine);
        }
        Ok(applied)
    }

    fn decide(&mut self, id: LogId, mut proposal: Proposal) -> io::Result<Applied> {
        let listener = proposal.listener.take();
        let entry =
            proposal.decoded().map_err(|error| damaged(format!("log entry {id} cannot be decoded: {error}")))?;
        if let Some((claim, own)) = entry.digest.and_then(|claim| Some((claim, self.dirty.differing(claim)?))) {
            return Err(damaged(differing(id, claim, own)));
        }
        Ok(self.machine.apply_with(id.index, &entry, |so_far| {
            if let Some(listener) = &listener {
                listener.decided(so_far);
            }
        }))
    }
}

/// The machine with these records; an empty machine if there are none.
pub(super) fn decoded_machine(records: &[(Bytes, Bytes)]) -> io::Result<Machine> {
    let decoded = records
        .iter()
        .map(|(key, value)| codec::decode_record(key, value))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| damaged(format!("a record of the state: {error}")))?;
    if decoded.is_empty() {
        return Ok(Machine::new());
    }
    Machine::from_records(decoded).map_err(|error| damaged(error.to_string()))
}

fn differing(id: LogId, claim: DigestClaim, own: u128) -> String {
    format!(
        "the state here differs from that of most voters after log entry {}: digest {own:032x} here, {:032x} there \
         (reported in {id}); this node must not serve; move its directory away \
         and put a node with a new id in its place: lockkeeper member add ID",
        claim.index, claim.digest
    )
}
