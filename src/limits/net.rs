//! Limits of the ports: how they accept connections, and how long a new connection may be silent.

/// Pause before a port accepts connections again, after it could not because no descriptor was free.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Descriptors that clients do not get: a quarter of the process's limit, but at most this number. A node that cannot
/// open its own files stops.
pub const DESCRIPTORS_RESERVED_MAX: u64 = 256;
/// The sockets to other nodes have descriptors a little below this number, or below the process's limit if that is
/// lower. The kernel's table of descriptors grows to this size: 8 bytes each.
pub const HIGH_DESCRIPTORS_MAX: u64 = 16_384;
/// Time without failures after which a port logs the next failure as a new one.
pub const ACCEPT_QUIET_MS: u64 = 10_000;
/// Time after which a new connection is closed if its peer has sent nothing.
pub const FIRST_BYTES_MS_MAX: u64 = 10_000;
