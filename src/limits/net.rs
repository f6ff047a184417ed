//! Bounds of the ports: how they accept connections, and how long a new one may be silent.

/// A port that cannot accept a connection, because no descriptor is left, tries again after this pause.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// A quarter of the descriptors that a process may have, and at most so many, is not given to clients: a node that cannot
/// open its own files stops.
pub const DESCRIPTORS_RESERVED_MAX: u64 = 256;
/// A port that could accept everything for so long logs the next failure as a new one.
pub const ACCEPT_QUIET_MS: u64 = 10_000;
/// A connection whose peer has sent nothing for so long after it was accepted is closed.
pub const FIRST_BYTES_MS_MAX: u64 = 10_000;
