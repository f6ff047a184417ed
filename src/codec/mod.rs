//! Encodings that outlive a build: log entries, records of the state, and messages between nodes.
//!
//! Knows: limits, model, machine's records. Never: disks, openraft.
//!
//! Every value is in a frame: kind, format version, length and checksum. The content is bincode of this crate's types,
//! whose variants and fields are numbered by their order. New ones are added at the end under a higher version, and old
//! numbers are never reused. Bytes that cannot be decoded are an error with a reason; they are never skipped.

mod frame;
mod payload;
mod record;
#[cfg(test)]
pub(crate) mod tests;

pub use frame::{DecodeError, FORMAT, Kind};
pub use record::{decode_record, encode_key, encode_record};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::Entry;

/// Encodes a log entry for disk and network. The leader does this once for each entry.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    frame::encode(Kind::Entry, entry)
}

/// Decodes a log entry. A node that gets an error here stops, because it must not skip what other nodes applied.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    frame::decode(Kind::Entry, bytes)
}

/// Encodes a message between nodes, or another value, in a frame of this kind.
pub fn encode_message<T: Serialize>(kind: Kind, value: &T) -> Bytes {
    frame::encode(kind, value)
}

/// Decodes the value in a frame of this kind.
pub fn decode_message<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    frame::decode(kind, bytes)
}
