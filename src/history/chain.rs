//! The chain: the hash of each record covers the hash of the previous record.

use sha2::{Digest, Sha256};

use crate::model::{ChainHash, Namespace};

/// The hash of a record with these [bytes](super::bytes), after the record with the hash `before`.
#[must_use]
pub fn link(namespace: &Namespace, before: ChainHash, record: &[u8]) -> ChainHash {
    let name = namespace.as_str().as_bytes();
    let mut hasher = Sha256::new();
    hasher.update(before.0);
    // The zero byte marks the end of the namespace, because no namespace contains one.
    hasher.update(name);
    hasher.update([0]);
    hasher.update(record);
    let whole = hasher.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&whole[..16]);
    ChainHash(short)
}
