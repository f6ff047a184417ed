//! Bounds of the command line.

/// An address that is in use, though nobody is seen to listen there, is waited for so long: a process that was
/// killed keeps its sockets until its memory is gone.
pub const LISTEN_WAIT_MS: u64 = 2_000;
/// It is tried this often.
pub const LISTEN_PAUSE_MS: u64 = 50;
/// A lock's command is ended this much before its hold could run out, besides the time for ending it in order.
pub const LOSS_MARGIN_MS: u64 = 50;
/// First pause between two looks whether a process group is gone.
pub const GROUP_POLL_MS_MIN: u64 = 1;
/// Longest pause between two looks whether a process group is gone.
pub const GROUP_POLL_MS_MAX: u64 = 100;
/// A command that has ended while others of its group run on: the user is notified after this.
pub const LEFT_BEHIND_NOTICE_MS: u64 = 1_000;
/// A terminal that is another job's is looked at again after this.
pub const TERMINAL_RETRY_MS: u64 = 250;
/// A guardian that was sent away has ended after this, or was stopped by a signal.
pub const GUARDIAN_ENDS_MS: u64 = 1_000;
/// A second TERM leaves this part of the time before the kill.
pub const HURRY_FACTOR: u32 = 4;
/// Progress is drawn anew so often.
pub const PROGRESS_TICK_MS: u64 = 250;
/// On so many processors the workers of what serves keep to one each. Measured with two; where there are more, Linux has
/// more room to find an idle one.
pub const SPREAD_PROCESSORS_MAX: usize = 2;
/// A stop signal to oneself has taken effect after this, or never will.
pub const STOP_SETTLES_MS: u64 = 100;
/// Fewest digits that name a cluster behind a position: enough for nobody to meet another one by chance.
pub const CLUSTER_DIGITS_MIN: usize = 4;
/// All digits of a cluster's id.
pub const CLUSTER_DIGITS_MAX: usize = 32;
/// Longest user, host or program that a command names as itself, in bytes: all of them leave half of the metadata to a reason.
pub const WHO_PART_BYTES_MAX: usize = 64;
