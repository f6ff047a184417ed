//! Limits of `drill`.

/// TTL of the sessions of a drill, or the minimum of its timing profile if that is longer. Longer than any failover on
/// one machine, and short enough that each session is renewed several times.
pub const DRILL_TTL_MS: u64 = 5_000;
/// Clients of a drill.
pub const DRILL_CLIENTS: usize = 64;
/// Time for which a client of a drill holds a lock. Short, because four clients in turn hold the exclusive lock.
pub const DRILL_HOLD_MS: u64 = 1;
/// Pause of a client of a drill that has a separate lock, between two requests. With 64 clients the drill requests a
/// lock each millisecond, and leaves time to other programs of a small machine.
pub const DRILL_PAUSE_BETWEEN_MS: u64 = 50;
/// Interval at which a drill asks which node leads, and draws its view.
pub const DRILL_LOOK_MS: u64 = 25;
/// Longest wait for the answer of one node about its state.
pub const DRILL_ANSWER_MS: u64 = 500;
/// Longest time for the recovery after one fault. If it is exceeded, the drill ends.
pub const DRILL_RECOVERY_MS: u64 = 30_000;
/// Time for which all nodes are paused at once. A single node is paused until the others serve all clients.
pub const DRILL_PAUSE_MS: u64 = 500;
/// Length of the lease that a drill lets expire.
pub const DRILL_LEASE_MS: u64 = 1_000;
/// Latest grant to the waiter behind that lease, after its end: the promised half second, and as much for the answers.
pub const DRILL_LATE_MS: u64 = 1_000;
/// Rounds of one drill.
pub const DRILL_ROUNDS_MAX: u32 = 1_000;
/// Broken promises that a report lists. Further ones are only counted.
pub const DRILL_LISTED_MAX: usize = 20;
