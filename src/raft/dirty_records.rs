//! The changed records, and the digest of the whole state, which is updated with each changed record.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use crate::codec;
use crate::limits::DIGESTS_REMEMBERED;
use crate::machine::Machine;
use crate::model::DigestClaim;
use crate::storage::record_hash;

/// The digest of all records and the changes that the next checkpoint will write.
#[derive(Default)]
pub(super) struct DirtyRecords {
    /// The hash of each record, by the hash of its key.
    hashes: HashMap<u128, u128, foldhash::fast::FixedState>,
    digest: u128,
    pending: Changes,
    claims: VecDeque<DigestClaim>,
}

pub(super) type Changes = BTreeMap<Bytes, Change>;

/// The change of one record that the next checkpoint will write.
pub(super) struct Change {
    /// The record; `None` if it was removed.
    value: Option<Bytes>,
    /// Whether the last checkpoint has a record with this key.
    stored: bool,
}

/// The changes in the form in which they are written: `None` for a removed record.
pub(super) fn written(changes: Changes) -> Vec<(Bytes, Option<Bytes>)> {
    changes.into_iter().map(|(key, change)| (key, change.value)).collect()
}

/// Adds a change to the earlier ones. A record that was created and removed since the last checkpoint needs no write.
fn add(earlier: &mut Changes, key: Bytes, change: Change) {
    match earlier.entry(key) {
        Entry::Occupied(found) if change.value.is_none() && !found.get().stored => drop(found.remove()),
        Entry::Occupied(mut found) => found.get_mut().value = change.value,
        Entry::Vacant(_) if change.value.is_none() && !change.stored => {}
        Entry::Vacant(free) => drop(free.insert(change)),
    }
}

impl DirtyRecords {
    /// The digest and hashes of these records, with no pending change.
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a (Bytes, Bytes)>) -> Self {
        let mut clean = Self::default();
        for (key, value) in records {
            clean.set(key, Some(record_hash(key, value)));
        }
        clean
    }

    /// Stores a record's hash, or removes it. Returns whether there was a record before.
    fn set(&mut self, key: &[u8], hash: Option<u128>) -> bool {
        let key_hash = record_hash(key, &[]);
        let before = match hash {
            Some(hash) => self.hashes.insert(key_hash, hash),
            None => self.hashes.remove(&key_hash),
        };
        self.digest = self.digest.wrapping_sub(before.unwrap_or(0)).wrapping_add(hash.unwrap_or(0));
        before.is_some()
    }

    /// Applies every record that the machine changed since the last fold.
    pub(super) fn fold(&mut self, machine: &mut Machine) {
        machine.take_dirty(|state, key| {
            let (key, value) = match state.record(&key) {
                Some(record) => {
                    let (key, value) = codec::encode_record(&key, &record);
                    (key, Some(value))
                }
                None => (codec::encode_key(&key), None),
            };
            let stored = self.set(&key, value.as_ref().map(|value| record_hash(&key, value)));
            add(&mut self.pending, key, Change { value, stored });
        });
    }

    /// The sum of the record hashes, as of the last fold.
    pub(super) fn digest(&self) -> u128 {
        self.digest
    }

    /// How many records there are, as of the last fold.
    pub(super) fn records(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// How many changes wait for the next checkpoint, as of the last fold.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The changes since the last call, for a checkpoint.
    pub(super) fn take_pending(&mut self) -> Changes {
        std::mem::take(&mut self.pending)
    }

    /// Makes changes pending again that no checkpoint has written.
    pub(super) fn restore(&mut self, taken: Changes) {
        let newer = std::mem::replace(&mut self.pending, taken);
        for (key, change) in newer {
            add(&mut self.pending, key, change);
        }
    }

    /// Stores the current digest as the digest of the state after the entry at `index`.
    pub(super) fn remember(&mut self, index: u64) {
        if self.claims.len() == DIGESTS_REMEMBERED {
            self.claims.pop_front();
        }
        self.claims.push_back(DigestClaim { index, digest: self.digest });
    }

    /// The stored digests, oldest first.
    pub(super) fn claims(&self) -> Vec<DigestClaim> {
        self.claims.iter().copied().collect()
    }

    /// Returns this node's digest at the index of a claim if the two differ. Returns `None` if they are equal, or if
    /// this node has no digest for that index.
    pub(super) fn differing(&self, claim: DigestClaim) -> Option<u128> {
        self.claims
            .iter()
            .find(|own| own.index == claim.index)
            .map(|own| own.digest)
            .filter(|digest| *digest != claim.digest)
    }
}
