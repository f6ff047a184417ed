//! Limits and intervals of the locks with the interfaces of other systems.

use super::{LOCK_NAME_BYTES_MAX, MIRROR_VALUE_BYTES, NAMESPACE_BYTES_MAX};

/// Interval at which a process of the config profile pings.
pub const CONFIG_PING_MS: u64 = 30_000;
/// A process reports a ping of its own that is late by this factor.
pub const CONFIG_SLOW_PING_FACTOR: u32 = 10;
/// Time without a ping of its process after which a lock of the config profile is taken over.
pub const CONFIG_TAKEOVER_MS: u64 = 15 * 60 * 1000;
/// Longest pause between two attempts for a lock of the config profile.
pub const CONFIG_RETRY_MS: u64 = 500;
/// Default wait for a lock of the config profile.
pub const CONFIG_WAIT_MS: u64 = 20_000;
/// Interval at which a waiter for a lock of the config profile reports that it still waits.
pub const CONFIG_LOG_MS: u64 = 10_000;
/// Renewals of a lease lock within its period. With three, no more than half a period passes between two renewals.
pub const LEASE_RENEWALS_A_PERIOD: u32 = 3;
/// Times of renewals that a lease lock remembers.
pub const LEASE_RENEWALS_KEPT: usize = 64;
/// Retries for a lock of the config profile after a lost answer.
pub const CONFIG_UNCLEAR_TRIES_MAX: u32 = 2;

/// How many times a legacy manager of the config profile compares the service's time with its own clock.
pub const CONFIG_SKEW_ROUNDS: usize = 3;
/// Largest allowed change of the difference between these clocks.
pub const CONFIG_SKEW_MS_MAX: u64 = 30_000;

const _: () = assert!(CONFIG_PING_MS * 2 < CONFIG_TAKEOVER_MS, "one lost ping must not cost a lock");

/// Documents of free locks in one namespace. If there are more, the document of the oldest grant is removed.
pub const DOCUMENTS_A_NAMESPACE_MAX: usize = 100_000;
/// Documents that one command frees at once. The sweeps of the next entries free the others.
pub const DOCUMENTS_UNLOCKED_AT_ONCE_MAX: usize = 1_024;
/// Commands on more documents than that, of one namespace, that may be in one entry, and that may be unfinished. Each
/// looks at all documents of its process or `ts`.
pub const UNLOCKS_OF_MANY_MAX: usize = 8;
/// The same for all namespaces together.
pub const UNLOCKS_OF_MANY_ALL_MAX: usize = 64;
/// Documents that the commands of one entry look at before it refuses another command on many documents.
pub const UNLOCKS_LOOKED_MAX: usize = 800_000;

const _: () = assert!(
    UNLOCKS_OF_MANY_ALL_MAX * (NAMESPACE_BYTES_MAX + PROCESS_BYTES_MAX + LOCK_NAME_BYTES_MAX + 64) + 1024
        <= MIRROR_VALUE_BYTES,
    "the record with all unfinished commands is one value"
);

/// Processes in one namespace that have pinged.
pub const PROCESSES_A_NAMESPACE_MAX: usize = 100_000;
/// Time without pings after which a process without locks is removed: four days.
pub const PROCESS_KEPT_MS: u64 = 4 * 24 * 60 * 60 * 1000;
/// Longest name of a process that pings, in bytes.
pub const PROCESS_BYTES_MAX: usize = 255;
/// Longest value of a hold, in bytes.
pub const LOCK_VALUE_BYTES_MAX: usize = 4 * 1024;
