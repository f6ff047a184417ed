//! Limits of the command line.

/// Time to wait for an address that is in use although no process listens there, because a killed process keeps its
/// sockets until its memory is freed.
pub const LISTEN_WAIT_MS: u64 = 2_000;
/// Interval between two attempts to listen at such an address.
pub const LISTEN_PAUSE_MS: u64 = 50;
/// Margin by which the command of `lock` must have ended before its hold can expire, in addition to the time for an
/// orderly end.
pub const LOSS_MARGIN_MS: u64 = 50;
/// First pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MIN: u64 = 1;
/// Longest pause between two checks whether a process group is gone.
pub const GROUP_POLL_MS_MAX: u64 = 100;
/// Time after which the user is notified of a command that has ended while other processes of its group still run.
pub const LEFT_BEHIND_NOTICE_MS: u64 = 1_000;
/// Interval at which the command checks again whether the terminal still belongs to another job.
pub const TERMINAL_RETRY_MS: u64 = 250;
/// Time in which a dismissed guardian ends, unless a signal has stopped it.
pub const GUARDIAN_ENDS_MS: u64 = 1_000;
/// Longest wait for the release of a lock after a signal.
pub const CLOSE_ENDS_MS: u64 = 1_000;
/// Divisor of the remaining time before the kill, applied at a second TERM.
pub const SECOND_TERM_DIVISOR: u32 = 4;
/// Notices that wait for the reader of standard error; further ones are lost.
pub const NOTICES_WAITING_MAX: usize = 16;
/// Longest wait for notices that are not printed at the end of a run.
pub const NOTICES_MS_MAX: u64 = 1_000;
/// Longest read of what blocks a name, after a wait for it timed out.
pub const BLOCKER_READ_MS_MAX: u64 = 1_000;
/// Shortest time between two frames of `top`.
pub const TOP_DELAY_MS_MIN: u64 = 100;
/// Interval at which progress is displayed.
pub const PROGRESS_TICK_MS: u64 = 250;
/// Most processors with which each worker of a server is bound to its own processor. Measured with two; with more,
/// Linux finds an idle one more often.
pub const SPREAD_PROCESSORS_MAX: usize = 2;
/// One task of this many comes from the queue that all workers share. Measured by `scripts/attack.sh` with calls at
/// full speed: with 2, the p99 of another client is a fifth of that with Tokio's own choice; from 6 on, it is longer.
/// Without such load, `lockkeeper bench` measures no difference.
pub const SHARED_QUEUE_INTERVAL: u32 = 2;
/// Time in which a stop signal that a process sends to itself takes effect, if it does.
pub const STOP_SETTLES_MS: u64 = 100;
/// Fewest digits of a cluster's id after a position. With four, two clusters are unlikely to have the same digits.
pub const CLUSTER_DIGITS_MIN: usize = 4;
/// Number of digits of a cluster's id.
pub const CLUSTER_DIGITS_MAX: usize = 32;
/// Longest user, host or program that a command reports about itself, in bytes. All of them together leave half of the
/// metadata to a reason.
pub const WHO_PART_BYTES_MAX: usize = 64;
/// Time in which a node must have answered with its metrics.
pub const SCRAPE_MS_MAX: u64 = 2_000;
/// Largest answer with metrics, in bytes.
pub const SCRAPE_BYTES_MAX: usize = 8 << 20;
/// Longest part of an answer without metrics that is shown, in characters.
pub const SCRAPE_WHY_CHARS_MAX: usize = 200;
/// Number of writes with which `doctor` measures a disk.
pub const DOCTOR_SYNCS: usize = 200;
/// Size of each of these writes, in bytes.
pub const DOCTOR_SYNC_BYTES: usize = 4_096;
/// Number of requests with which `doctor` measures the round trip to a node.
pub const DOCTOR_ROUND_TRIPS: usize = 100;
/// From this time of a synced write on, `doctor` warns of the disk.
pub const DOCTOR_SYNC_US_WARN: u64 = 10_000;
/// Below this free space of its disk a node is in danger, in bytes.
pub const DOCTOR_FREE_BYTES_MIN: u64 = 2 << 30;
/// Below this share of free space `doctor` warns.
pub const DOCTOR_FREE_PERCENT_WARN: u64 = 10;
/// Number of log entries that a healthy node may lack.
pub const DOCTOR_LAG_WARN: u64 = 10_000;
/// Difference of two wall clocks from which dates mislead, in seconds.
pub const DOCTOR_WALL_SECS_WARN: u64 = 2;
/// Number of changes of the leader in an hour from which `doctor` warns.
pub const DOCTOR_LEADERS_AN_HOUR_WARN: f64 = 3.0;
/// Log time that was not counted in an hour from which `doctor` warns, in seconds.
pub const DOCTOR_UNCOUNTED_AN_HOUR_SECS_WARN: f64 = 2.0;
/// Fewest file descriptors that a node needs for its usual number of clients.
pub const DOCTOR_DESCRIPTORS_WARN: u64 = 65_536;
/// Fewest file descriptors with which a node should run at all.
pub const DOCTOR_DESCRIPTORS_MIN: u64 = 4_096;
/// Share of a quota from which `doctor` warns.
pub const DOCTOR_QUOTA_RATIO_WARN: f64 = 0.8;
/// Days before the end of a certificate from which `doctor` warns.
pub const DOCTOR_CERTIFICATE_DAYS_WARN: u64 = 30;
/// Days before the end of a certificate from which `doctor` reports a failure.
pub const DOCTOR_CERTIFICATE_DAYS_MIN: u64 = 7;
/// Number of locks in a frame of `top`.
pub const TOP_LOCKS_MAX: usize = 200;

/// When a command reads files for TLS again that do not fit together: a renewal replaces two files.
pub const TLS_FILES_AGAIN_MS: u64 = 200;
