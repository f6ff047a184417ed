//! Limits of the command line.

/// Time to wait for an address that is in use although no process listens there: a killed process keeps its sockets
/// until its memory is freed.
pub const LISTEN_WAIT_MS: u64 = 2_000;
/// Interval between two attempts to listen there.
pub const LISTEN_PAUSE_MS: u64 = 50;
/// Margin by which the command of `lock` is ended before its hold can expire, in addition to the time for an orderly
/// end.
pub const LOSS_MARGIN_MS: u64 = 50;
/// First pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MIN: u64 = 1;
/// Longest pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MAX: u64 = 100;
/// Time after which the user is notified of a command that has ended while other processes of its group still run.
pub const LEFT_BEHIND_NOTICE_MS: u64 = 1_000;
/// Interval at which a terminal that belongs to another job is checked again.
pub const TERMINAL_RETRY_MS: u64 = 250;
/// Time in which a dismissed guardian has ended, or was stopped by a signal.
pub const GUARDIAN_ENDS_MS: u64 = 1_000;
/// Divisor of the time before the kill after a second TERM.
pub const HURRY_FACTOR: u32 = 4;
/// Interval at which progress is displayed.
pub const PROGRESS_TICK_MS: u64 = 250;
/// Most processors on which each worker of a server is pinned to its own. Measured with two; with more of them, Linux
/// can better find an idle one.
pub const SPREAD_PROCESSORS_MAX: usize = 2;
/// Time in which a stop signal to the own process has taken effect, if ever.
pub const STOP_SETTLES_MS: u64 = 100;
/// Fewest digits that name a cluster behind a position: enough to make a collision of two clusters unlikely.
pub const CLUSTER_DIGITS_MIN: usize = 4;
/// Number of digits of a cluster's id.
pub const CLUSTER_DIGITS_MAX: usize = 32;
/// Longest user, host or program that a command reports about itself, in bytes: all of them leave half of the metadata
/// to a reason.
pub const WHO_PART_BYTES_MAX: usize = 64;
