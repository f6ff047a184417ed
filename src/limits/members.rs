//! Bounds of membership, and of comparing the states of the members.

/// A learner that lacks more log entries gets no vote.
pub const PROMOTE_LAG_ENTRIES_MAX: u64 = 1_000;
/// State digests that a node remembers of itself.
pub const DIGESTS_REMEMBERED: usize = 4;
