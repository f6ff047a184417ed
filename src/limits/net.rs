//! Limits of the ports: how they accept connections, and how long a new connection may be silent.

/// Pause of a port that cannot accept connections because no file descriptor is free.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Most file descriptors that are reserved for the node itself. If a quarter of the process's limit is less, that is
/// reserved. A node that cannot open its own files stops.
pub const DESCRIPTORS_RESERVED_MAX: u64 = 256;
/// Time without failures after which a port logs the next failure as a new one.
pub const ACCEPT_QUIET_MS: u64 = 10_000;
/// Time after which a new connection is closed if its peer has sent nothing.
pub const FIRST_BYTES_MS_MAX: u64 = 10_000;
