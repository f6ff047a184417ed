//! Bytes that outlive the code: log entries, records of the state, and messages between nodes.
//!
//! Knows: limits, model, machine's records. Never: disks, openraft.
//!
//! Everything stands in a frame: kind, format version, length and checksum. Inside it is bincode of our own types,
//! whose variants and fields are numbered by their order: new ones are added at the end under a higher version, old ones
//! are never reused. What cannot be decoded is an error that says why; it is never skipped.

mod entry;
mod frame;
#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod kept_log;
#[cfg(test)]
mod largest;
mod message;
mod payload;
mod record;
#[cfg(test)]
mod tests;

pub use entry::{decode_entry, encode_entry};
pub use frame::{DecodeError, FORMAT, Kind};
pub use message::{decode_message, encode_message};
pub use record::{decode_record, encode_key, encode_record};
