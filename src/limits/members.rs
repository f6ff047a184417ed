//! Bounds of membership, and of comparing the states of the members.

/// A learner that lacks more log entries gets no vote.
pub const PROMOTE_LAG_ENTRIES_MAX: u64 = 1_000;
/// The longest that a change of the members, or a hand-over on the way through another node, waits for its end.
pub const MEMBERSHIP_WAIT_MS_MAX: u64 = 5_000;
/// A leader that asks a voter what it says of itself waits so long for its answer.
pub const ANNOUNCE_WAIT_MS: u64 = 1_000;
/// A leader that does not find in the state what it says of itself says it again after so long.
pub const ANNOUNCE_AGAIN_MS: u64 = 100;
/// A leader that hands over waits so long for a follower to have the whole log.
pub const CATCH_UP_WAIT_MS: u64 = 500;
/// A node that finds no leader to ask how the cluster is says after this what it sees itself.
pub const STATUS_WAIT_MS: u64 = 1_000;
/// A node remembers the digest of its state after the first entry of each such stretch of log time, so that all remember it
/// of the same entries; the leader compares those of the voters as often.
pub const DIGEST_MS: u64 = 3_000;
/// How long the leader waits for what a voter remembers.
pub const DIGEST_WAIT_MS: u64 = 1_000;
/// State digests that a node remembers of itself.
pub const DIGESTS_REMEMBERED: usize = 4;
