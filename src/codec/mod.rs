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

pub use frame::{DecodeError, FORMAT, Kind, decode_message, encode_message};
pub use record::{decode_record, encode_key, encode_record};

use bytes::Bytes;

use crate::model::Entry;

/// Encodes a log entry for disk and network. The leader does this once for each entry.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    encode_message(Kind::Entry, entry)
}

/// Decodes a log entry. A node that gets an error here stops, because it must not skip what other nodes applied.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    decode_message(Kind::Entry, bytes)
}
