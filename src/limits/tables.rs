//! Bounds of what a node keeps by session and by namespace.

/// Subscribers by session are looked through for those that are gone when there are twice as many as were left, and at
/// least twice as many as this.
pub const SESSIONS_SWEPT_MIN: usize = 64;
/// The highest bound on the commands a second of one namespace.
pub const COMMANDS_A_SECOND_MAX: u32 = 1_000_000;
/// Namespaces whose commands are counted are looked through for quiet ones when there are twice as many as were left,
/// and at least twice as many as this.
pub const RATES_SWEPT_MIN: usize = 64;

/// A connection to another node on which a call waits is asked for a sign of life this often.
pub const PEER_PING_MS: u64 = 1_500;
/// A connection to another node that gives no sign of life for so long is given up, and what waits on it is asked anew.
pub const PEER_PING_WAIT_MS: u64 = 1_500;

/// What a request says of itself takes about as many bytes; more is room that has to be made.
pub const FINGERPRINT_BYTES_USUAL: usize = 192;
