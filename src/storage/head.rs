//! The head of a set of records: their log position, their count and their digest.

use std::io;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::error::invalid_data;
use super::ids::LogId;
use crate::faults::{self, Fault};

/// Describes a set of records. Equal heads mean equal sets of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The last entry whose effects are in the records; `None` before the first.
    pub log_id: Option<LogId>,
    /// The number of records.
    pub records: u64,
    /// The wrapping sum of [`record_hash`] over all records, in any order.
    pub digest: u128,
    /// Data that belongs to the records, such as the membership. This module does not interpret it.
    pub meta: Bytes,
}

/// The hash of one record. The length of the key and of the value precede each, so that two different records never
/// have the same bytes.
pub fn record_hash(key: &[u8], value: &[u8]) -> u128 {
    let mut hash = Xxh3::new();
    for part in [key, value] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest128()
}

/// Counts records and adds up their hashes.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) records: u64,
    pub(super) digest: u128,
}

impl Tally {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.digest = self.digest.wrapping_add(record_hash(key, value));
    }

    /// Describes how this differs from `head`; `None` if it does not.
    pub(super) fn differs_from(&self, head: &Head) -> Option<String> {
        if faults::on(Fault::MirrorTrusted) {
            return None;
        }
        if self.records != head.records {
            return Some(format!("{} records, {} expected", self.records, head.records));
        }
        (self.digest != head.digest).then(|| format!("digest {:032x}, {:032x} expected", self.digest, head.digest))
    }
}

impl Head {
    /// Encodes log id (a presence byte and three integers), count, digest and meta. Integers are little-endian.
    pub(super) fn encode(&self) -> Vec<u8> {
        let id = self.log_id.unwrap_or(LogId::new(0, 0, 0));
        let mut bytes = vec![u8::from(self.log_id.is_some())];
        for word in [id.term, id.node, id.index, self.records] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.digest.to_le_bytes());
        bytes.extend_from_slice(&self.meta);
        bytes
    }

    /// Decodes the bytes of [`encode`](Self::encode). The caller has already verified a checksum, so an error means
    /// that another program wrote the bytes.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        const FIXED_BYTES: usize = 1 + 4 * 8 + 16;
        if bytes.len() < FIXED_BYTES || bytes[0] > 1 {
            return Err(invalid_data("not a head"));
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[1 + at * 8..9 + at * 8]);
            u64::from_le_bytes(word)
        };
        let mut digest = [0; 16];
        digest.copy_from_slice(&bytes[33..FIXED_BYTES]);
        Ok(Self {
            log_id: (bytes[0] == 1).then(|| LogId::new(word(0), word(1), word(2))),
            records: word(3),
            digest: u128::from_le_bytes(digest),
            meta: Bytes::copy_from_slice(&bytes[FIXED_BYTES..]),
        })
    }
}
