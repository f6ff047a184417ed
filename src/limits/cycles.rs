//! Limits of the search for cycles of waiters, and of what is reported about them.

/// Links of a cycle of waiters that are reported. The others are left out, so that a refusal fits into the headers of a
/// call.
pub const CYCLE_LINKS_MAX: usize = 8;
/// Longest text about the owner, and longest reason, in each link, in bytes.
pub const CYCLE_TEXT_BYTES_MAX: usize = 64;
/// Steps of all deadlock checks of one entry together. Each step examines a claim or an owner. Further checks are
/// skipped.
pub const DEADLOCK_STEPS_AN_ENTRY_MAX: usize = 1 << 20;
/// Owners that a walk over the waiters of one owner visits before it stops without a result.
pub const CYCLE_OWNERS_WALKED_MAX: usize = 1_024;
/// Claims that such a walk visits before it stops without a result.
pub const CYCLE_STEPS_WALKED_MAX: usize = 8 * CYCLE_OWNERS_WALKED_MAX;
/// Owners that are checked by such walks, one by one. If there are more, one replay checks all of them.
pub const OWNERS_WALKED_ONE_BY_ONE_MAX: usize = 16;
