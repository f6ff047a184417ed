//! The frame around all encoded values: `kind, version, length (4), checksum (4), payload`, numbers little-endian.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::payload;

/// The format that this build writes. This build reads it and all earlier ones.
pub const FORMAT: u8 = 1;

const HEADER_BYTES: usize = 10;
/// The largest length of a frame, so that a damaged length does not cause a large allocation.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The content of a frame. The numbers are stored, so they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An entry of the log.
    Entry = 1,
    /// The value of a record of the state.
    Record = 2,
    /// A call from node to node.
    Call = 3,
    /// The answer to a call.
    Answer = 4,
    /// A membership of the Raft group.
    Membership = 5,
    /// The head of a snapshot, which precedes the records.
    Head = 6,
}

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There are fewer bytes than the frame announces.
    #[error("cut short: {have} bytes of {want}")]
    Short {
        /// The number of bytes that were found.
        have: usize,
        /// The number of bytes that the frame announces.
        want: usize,
    },
    /// The frame has another kind than expected.
    #[error("a frame of kind {found}, not {expected}")]
    Kind {
        /// The kind that was found.
        found: u8,
        /// The kind that was expected.
        expected: u8,
    },
    /// A newer build wrote the frame.
    #[error("format {found}: this build reads 1 to {FORMAT}; a newer lockkeeper wrote it")]
    Version {
        /// The version that was found.
        found: u8,
    },
    /// The frame is damaged.
    #[error("checksum {found:08x}, not {expected:08x}: damaged")]
    Checksum {
        /// The checksum of the bytes.
        found: u32,
        /// The checksum in the header.
        expected: u32,
    },
    /// The frame is whole, but its content is malformed.
    #[error("malformed: {0}")]
    Malformed(String),
}

fn options() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<PAYLOAD_BYTES_MAX>()
}

/// Encodes a message between nodes, or another value, in a frame of this kind.
pub fn encode_message<T: Serialize>(kind: Kind, value: &T) -> Bytes {
    let mut bytes = BytesMut::with_capacity(256);
    bytes.put_bytes(0, HEADER_BYTES);
    let mut writer = bytes.writer();
    bincode::serde::encode_into_std_write(value, &mut writer, options())
        .expect("memory takes every value of ours, none of which is too large");
    let mut bytes = writer.into_inner();
    let payload = bytes.len() - HEADER_BYTES;
    let checksum = crc32fast::hash(&bytes[HEADER_BYTES..]);
    let mut header = &mut bytes[..HEADER_BYTES];
    header.put_u8(kind as u8);
    header.put_u8(FORMAT);
    header.put_u32_le(u32::try_from(payload).expect("bounded by the limits of what goes in"));
    header.put_u32_le(checksum);
    bytes.freeze()
}

/// Decodes the value in a frame of this kind. Returns an error if bytes are left over.
pub fn decode_message<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    let payload = open(kind, bytes)?;
    payload::read(payload, options()).map_err(|error| DecodeError::Malformed(error.to_string()))
}

fn open(kind: Kind, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(DecodeError::Short { have: bytes.len(), want: HEADER_BYTES });
    };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[0] != kind as u8 {
        return Err(DecodeError::Kind { found: header[0], expected: kind as u8 });
    }
    if header[1] == 0 || FORMAT < header[1] {
        return Err(DecodeError::Version { found: header[1] });
    }
    let want = number(2) as usize;
    if payload.len() != want {
        return Err(DecodeError::Short { have: payload.len(), want });
    }
    let found = crc32fast::hash(payload);
    let expected = number(6);
    if found != expected {
        return Err(DecodeError::Checksum { found, expected });
    }
    Ok(payload)
}
