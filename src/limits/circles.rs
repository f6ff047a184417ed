//! Bounds of the search for circles of waiters, and of what is told of them.

/// Links of a circle of waiters that are told; the rest is left out, so that a refusal fits into a call's headers.
pub const CIRCLE_LINKS_MAX: usize = 8;
/// How much each of them may say of who it is, and as much of what for, in bytes.
pub const CIRCLE_TEXT_BYTES_MAX: usize = 64;
/// Waiters or holders that one step of a search for circles looks at.
pub const REACH_STEP_MAX: usize = 32;
/// Waits and holds that a search for a plain circle looks at in each direction, before everything is looked at.
pub const PLAIN_CIRCLE_LOOKED_AT_MAX: usize = 512;
/// Needs that a search for any circle looks at; a wait whose search would be longer is taken for one that closes none.
pub const CIRCLE_LOOKED_AT_MAX: usize = 262_144;
/// Suspects that are searched for circles one by one; more are first looked at together.
pub const SUSPECTS_ONE_BY_ONE_MAX: usize = 16;
/// Needs that all searches of one command look at together: suspects beyond are taken for being in no circle.
pub const SUSPECTS_LOOKED_AT_MAX: usize = 4 * CIRCLE_LOOKED_AT_MAX;
