//! Bytes that outlive the code: log entries, records of the state, and messages between nodes.
//!
//! Knows: limits, model, machine's records. Never: disks, openraft.
//!
//! Everything stands in a frame: kind, format version, length and checksum. Inside it is bincode of our own types,
//! whose variants and fields are numbered by their order: new ones are added at the end under a higher version, old ones
//! are never reused. What cannot be decoded is an error that says why; it is never skipped.

mod frame;
#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod kept_log;
#[cfg(test)]
mod largest;
mod payload;
mod record;
#[cfg(test)]
mod tests;

pub use frame::{DecodeError, FORMAT, Kind};
pub use record::{decode_record, encode_key, encode_record};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::Entry;

/// One encoding of a log entry for disk and wire, made once, on the leader.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    frame::encode(Kind::Entry, entry)
}

/// The log entry in these bytes. A node that meets an error here stops: it must not skip what others applied.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    frame::decode(Kind::Entry, bytes)
}

/// A message between nodes, or another value of ours, in a frame of this kind.
pub fn encode_message<T: Serialize>(kind: Kind, value: &T) -> Bytes {
    frame::encode(kind, value)
}

/// The value in a frame of this kind.
pub fn decode_message<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    frame::decode(kind, bytes)
}
