//! Bounds of what a node keeps by session and by namespace.

/// Subscribers by session are looked through for those that are gone when there are twice as many as were left, and at
/// least twice as many as this.
pub const SESSIONS_SWEPT_MIN: usize = 64;
/// The highest bound on the commands a second of one namespace.
pub const COMMANDS_A_SECOND_MAX: u32 = 1_000_000;
/// Namespaces whose commands are counted are looked through for quiet ones when there are twice as many as were left,
/// and at least twice as many as this.
pub const RATES_SWEPT_MIN: usize = 64;
