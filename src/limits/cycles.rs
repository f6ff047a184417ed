//! Bounds of the search for cycles of waiters, and of what is told of them.

/// Links of a cycle of waiters that are told; the rest is left out, so that a refusal fits into a call's headers.
pub const CYCLE_LINKS_MAX: usize = 8;
/// How much each of them may say of who it is, and as much of what for, in bytes.
pub const CYCLE_TEXT_BYTES_MAX: usize = 64;
/// Steps that all checks for deadlocks of one entry take together: each looks at a claim or an owner. Checks beyond are skipped.
pub const DEADLOCK_STEPS_AN_ENTRY_MAX: usize = 1 << 20;
/// Owners that a walk over those that wait for one meets before it gives up.
pub const CYCLE_OWNERS_WALKED_MAX: usize = 1_024;
/// Claims that such a walk looks at before it gives up.
pub const CYCLE_STEPS_WALKED_MAX: usize = 8 * CYCLE_OWNERS_WALKED_MAX;
/// Owners to check for which such walks are made one by one; more are replayed at once.
pub const OWNERS_WALKED_ONE_BY_ONE_MAX: usize = 16;
