//! Limits of membership changes, and of the comparison of the members' states.

/// Number of missing log entries above which a learner is not made a voter.
pub const PROMOTE_LAG_ENTRIES_MAX: u64 = 1_000;
/// Longest wait for a change of the members, or for a transfer of leadership that a node forwards.
pub const MEMBERSHIP_WAIT_MS_MAX: u64 = 5_000;
/// Time that a leader waits for the announcement of a member.
pub const ANNOUNCE_WAIT_MS: u64 = 1_000;
/// Interval at which a leader repeats its own announcement until the state contains it.
pub const ANNOUNCE_AGAIN_MS: u64 = 100;
/// Time that a leader waits, before a transfer, for a follower to lack little of the log, and then to have all of it.
pub const CATCH_UP_WAIT_MS: u64 = 500;
/// Missing log entries of a follower above which a transfer does not pause the queue yet.
pub const TRANSFER_LAG_ENTRIES_MAX: u64 = 64;
/// Time that a node waits for a leader before it reports its own view of the cluster's status.
pub const STATUS_WAIT_MS: u64 = 1_000;
/// Interval of log time for state digests. Each node stores the digest after the first entry of each interval, so that
/// all nodes have the digests of the same entries. The leader compares the digests of the voters at the same interval.
pub const DIGEST_MS: u64 = 3_000;
/// Time that the leader waits for the digests of a voter.
pub const DIGEST_WAIT_MS: u64 = 1_000;
/// State digests that each node remembers.
pub const DIGESTS_REMEMBERED: usize = 4;
