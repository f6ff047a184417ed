//! Limits of the history that each namespace keeps.

use super::MIRROR_VALUE_BYTES;

/// Records of history kept for one namespace.
pub const HISTORY_RECORDS_MAX: usize = 65_536;
/// History kept for one namespace, in bytes.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// History of all namespaces together, in bytes. Above this size, the oldest records of all namespaces are removed.
pub const HISTORY_BYTES_ALL_MAX: usize = 128 << 20;
/// Size at which a segment of history is closed. As long as records are added to a segment, each checkpoint writes all
/// of it again.
pub const HISTORY_SEGMENT_BYTES: usize = 8 << 10;
/// Longest record of history in bytes, including its length field. A segment may exceed its size by one such record.
pub const HISTORY_NOTE_BYTES_MAX: usize = 4 << 10;
/// Approximate cost of a segment in addition to its records, in bytes.
pub const HISTORY_SEGMENT_COST_BYTES: usize = 256;
/// Segments of history that one query searches.
pub const HISTORY_SEGMENTS_A_PAGE_MAX: usize = 64;

const _: () = assert!(
    HISTORY_SEGMENT_BYTES + HISTORY_NOTE_BYTES_MAX + 64 <= MIRROR_VALUE_BYTES,
    "a segment and its last record are one value"
);
const _: () = assert!(HISTORY_BYTES_MAX <= HISTORY_BYTES_ALL_MAX);
