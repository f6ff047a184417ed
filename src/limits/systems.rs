//! Bounds and intervals of the locks of other systems.

/// A process of the config profile gives a sign of life so often.
pub const CONFIG_PING_MS: u64 = 30_000;
/// A process that slept so many times longer than between two signs of life says so.
pub const CONFIG_SLOW_PING_FACTOR: u32 = 10;
/// A lock of the config profile is overtaken after so long without a sign of life of its process.
pub const CONFIG_TAKEOVER_MS: u64 = 15 * 60 * 1000;
/// Between two tries for a lock of the config profile, at most.
pub const CONFIG_RETRY_MS: u64 = 500;
/// A lock of the config profile is waited for so long where nothing else is said.
pub const CONFIG_WAIT_MS: u64 = 20_000;
/// Who waits for a lock of the config profile says so this often.
pub const CONFIG_TELL_MS: u64 = 10_000;
/// The timer of a lease lock renews so often in its period: at a third, and so never later than half a period after the last.
pub const LEASE_RENEWALS_A_PERIOD: u32 = 3;
/// Tries for a lock of the config profile after an answer got lost.
pub const CONFIG_UNCLEAR_TRIES_MAX: u32 = 2;

/// How often a legacy manager of the config profile compares the service's time with its own clock.
pub const CONFIG_SKEW_ROUNDS: usize = 3;
/// By how much these may part meanwhile.
pub const CONFIG_SKEW_MS_MAX: u64 = 30_000;

const _: () = assert!(CONFIG_PING_MS * 2 < CONFIG_TAKEOVER_MS, "one lost ping must not cost a lock");

/// Documents of free locks in one namespace: more, and that of the oldest grant is forgotten.
pub const DOCUMENTS_A_NAMESPACE_MAX: usize = 100_000;
/// Documents that one command frees at once: of more, the others are left to the sweeps of the next entries.
pub const DOCUMENTS_UNLOCKED_AT_ONCE_MAX: usize = 1_024;
/// Processes in one namespace that gave signs of life.
pub const PROCESSES_A_NAMESPACE_MAX: usize = 100_000;
/// A process without locks that has given no sign of life for so long is forgotten: four days.
pub const PROCESS_KEPT_MS: u64 = 4 * 24 * 60 * 60 * 1000;
/// Longest name of a process that gives signs of life, in bytes.
pub const PROCESS_BYTES_MAX: usize = 255;
/// Longest value of a hold, in bytes.
pub const LOCK_VALUE_BYTES_MAX: usize = 4 * 1024;
