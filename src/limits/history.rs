//! Bounds of the history that each namespace keeps.

use super::MIRROR_VALUE_BYTES;

/// Records of history kept for one namespace.
pub const HISTORY_RECORDS_MAX: usize = 65_536;
/// The same, in bytes.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// History of all namespaces together, in bytes: beyond it the oldest is forgotten, whoever's it is.
pub const HISTORY_BYTES_ALL_MAX: usize = 128 << 20;
/// A segment of history is closed at this size: it is what a checkpoint writes again while records are added to it.
pub const HISTORY_SEGMENT_BYTES: usize = 8 << 10;
/// The longest record of history, its own length included: the last one of a segment may come when the segment is nearly full.
pub const HISTORY_NOTE_BYTES_MAX: usize = 4 << 10;
/// What a segment costs besides its records, about, in bytes.
pub const HISTORY_SEGMENT_COST_BYTES: usize = 256;
/// Segments of history that one question looks through.
pub const HISTORY_SEGMENTS_A_PAGE_MAX: usize = 64;

const _: () = assert!(
    HISTORY_SEGMENT_BYTES + HISTORY_NOTE_BYTES_MAX + 64 <= MIRROR_VALUE_BYTES,
    "a segment and its last record are one value"
);
const _: () = assert!(HISTORY_BYTES_MAX <= HISTORY_BYTES_ALL_MAX);
