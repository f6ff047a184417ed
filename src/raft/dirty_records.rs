//! Which records changed, and what the state as a whole is: kept up to date record by record.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use crate::codec;
use crate::limits::DIGESTS_REMEMBERED;
use crate::machine::Machine;
use crate::model::DigestClaim;
use crate::storage::record_hash;

/// The digest of all records, and the changes that the next checkpoint will write.
#[derive(Default)]
pub(super) struct DirtyRecords {
    /// Hash of each record, under the hash of its key.
    hashes: HashMap<u128, u128, foldhash::fast::FixedState>,
    digest: u128,
    pending: Changes,
    claims: VecDeque<DigestClaim>,
}

/// Changes by the keys of their records.
pub(super) type Changes = BTreeMap<Bytes, Change>;

/// What the next checkpoint will write under a key.
pub(super) struct Change {
    /// The record; `None` when it is gone.
    value: Option<Bytes>,
    /// The last checkpoint has a record under the key.
    stored: bool,
}

/// The changes as they are written: `None` where the record is gone.
pub(super) fn written(changes: Changes) -> Vec<(Bytes, Option<Bytes>)> {
    changes.into_iter().map(|(key, change)| (key, change.value)).collect()
}

impl DirtyRecords {
    /// A ledger of these records, with no change pending.
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a (Bytes, Bytes)>) -> Self {
        let mut ledger = Self::default();
        for (key, value) in records {
            ledger.set(key, Some(record_hash(key, value)));
        }
        ledger
    }

    /// Notes a record's hash; answers whether there was a record before.
    fn set(&mut self, key: &[u8], hash: Option<u128>) -> bool {
        let key_hash = record_hash(key, &[]);
        let before = match hash {
            Some(hash) => self.hashes.insert(key_hash, hash),
            None => self.hashes.remove(&key_hash),
        };
        self.digest = self.digest.wrapping_sub(before.unwrap_or(0)).wrapping_add(hash.unwrap_or(0));
        before.is_some()
    }

    /// Takes up every record that the machine touched since the last fold. What came and went since the last checkpoint
    /// leaves nothing to write.
    pub(super) fn fold(&mut self, machine: &mut Machine) {
        machine.take_dirty(|state, key| {
            let (key, value) = match state.record(&key) {
                Some(record) => {
                    let (key, value) = codec::encode_record(&key, &record);
                    (key, Some(value))
                }
                None => (codec::encode_key(&key), None),
            };
            let was_there = self.set(&key, value.as_ref().map(|value| record_hash(&key, value)));
            match self.pending.entry(key) {
                Entry::Occupied(found) if value.is_none() && !found.get().stored => drop(found.remove()),
                Entry::Occupied(mut found) => found.get_mut().value = value,
                Entry::Vacant(_) if value.is_none() && !was_there => {}
                Entry::Vacant(free) => drop(free.insert(Change { value, stored: was_there })),
            }
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

    /// Takes changes back that no checkpoint wrote, as if they had never been taken.
    pub(super) fn put_back(&mut self, taken: Changes) {
        let newer = std::mem::replace(&mut self.pending, taken);
        for (key, change) in newer {
            match self.pending.entry(key) {
                Entry::Occupied(found) if change.value.is_none() && !found.get().stored => drop(found.remove()),
                Entry::Occupied(mut found) => found.get_mut().value = change.value,
                Entry::Vacant(free) => drop(free.insert(change)),
            }
        }
    }

    /// Remembers the digest as the state's after the entry at `index`.
    pub(super) fn remember(&mut self, index: u64) {
        if self.claims.len() == DIGESTS_REMEMBERED {
            self.claims.pop_front();
        }
        self.claims.push_back(DigestClaim { index, digest: self.digest });
    }

    /// What is remembered, oldest first.
    pub(super) fn claims(&self) -> Vec<DigestClaim> {
        self.claims.iter().copied().collect()
    }

    /// The own digest at a claim's index, where it differs. What is no longer (or not yet) remembered cannot differ.
    pub(super) fn differing(&self, claim: DigestClaim) -> Option<u128> {
        self.claims
            .iter()
            .find(|own| own.index == claim.index)
            .map(|own| own.digest)
            .filter(|digest| *digest != claim.digest)
    }
}
