//! Log entries.

use bytes::Bytes;

use super::frame::{self, DecodeError, Kind};
use crate::model::Entry;

/// One encoding for disk and wire, made once, on the leader.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    frame::encode(Kind::Entry, entry)
}

/// The entry in these bytes. A node that meets an error here stops: it must not skip what others applied.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    frame::decode(Kind::Entry, bytes)
}
