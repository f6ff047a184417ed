//! Messages between nodes, and small structures of the Raft room.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{self, DecodeError, Kind};

/// Any value of ours in a frame of this kind.
pub fn encode_message<T: Serialize>(kind: Kind, value: &T) -> Bytes {
    frame::encode(kind, value)
}

/// The value in a frame of this kind.
pub fn decode_message<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    frame::decode(kind, bytes)
}
