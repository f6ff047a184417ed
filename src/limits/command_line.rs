//! Limits of the command line.

/// Time to wait for an address that is in use although no process listens there. A killed process keeps its sockets
/// until its memory is freed.
pub const LISTEN_WAIT_MS: u64 = 2_000;
/// Interval between two attempts to listen at such an address.
pub const LISTEN_PAUSE_MS: u64 = 50;
/// Margin before a hold can expire at which the command of `lock` is ended, in addition to the time for an orderly end.
pub const LOSS_MARGIN_MS: u64 = 50;
/// First pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MIN: u64 = 1;
/// Longest pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MAX: u64 = 100;
/// Time after which the user is notified of a command that has ended while other processes of its group still run.
pub const LEFT_BEHIND_NOTICE_MS: u64 = 1_000;
/// Interval at which a terminal that belongs to another job is checked again.
pub const TERMINAL_RETRY_MS: u64 = 250;
/// Time in which a guardian that is no longer needed ends, or is stopped by a signal.
pub const GUARDIAN_ENDS_MS: u64 = 1_000;
/// Divisor of the remaining time before the kill, applied at a second TERM.
pub const HURRY_FACTOR: u32 = 4;
/// Interval at which progress is displayed.
pub const PROGRESS_TICK_MS: u64 = 250;
/// Most processors for which each worker of a server is pinned to its own processor. Measured with two. With more
/// processors, Linux finds an idle one better.
pub const SPREAD_PROCESSORS_MAX: usize = 2;
/// Time after which a stop signal that the process sent to itself has taken effect, if it does.
pub const STOP_SETTLES_MS: u64 = 100;
/// Fewest digits of a cluster's id that follow a position. They make it unlikely that two clusters have the same
/// digits.
pub const CLUSTER_DIGITS_MIN: usize = 4;
/// Number of digits of a cluster's id.
pub const CLUSTER_DIGITS_MAX: usize = 32;
/// Longest user, host or program that a command reports about itself, in bytes. Together they leave half of the
/// metadata for a reason.
pub const WHO_PART_BYTES_MAX: usize = 64;
