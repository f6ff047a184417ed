//! Limits of the tables that a node keeps by session and by namespace.

/// Table of subscribers by session: it is searched for ended ones when it has twice as many entries as remained after
/// the last search, and at least twice as many as this.
pub const SESSIONS_SWEPT_MIN: usize = 64;
/// Highest value of the limit of commands per second of one namespace.
pub const COMMANDS_A_SECOND_MAX: u32 = 1_000_000;
/// Table of namespaces whose commands are counted: it is searched for idle ones when it has twice as many entries as
/// remained after the last search, and at least twice as many as this.
pub const RATES_SWEPT_MIN: usize = 64;

/// Interval of keepalive pings on a connection to another node while a call waits on it.
pub const PEER_PING_MS: u64 = 1_500;
/// Time after an unanswered ping at which a connection to another node is closed. The calls that wait on it are sent
/// again.
pub const PEER_PING_WAIT_MS: u64 = 1_500;

/// Usual size of the bytes from which a request's fingerprint is computed. Longer ones need another allocation.
pub const FINGERPRINT_BYTES_USUAL: usize = 192;
