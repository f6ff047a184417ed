//! What happens in a run: the mixed story, which is long and left to chance, and directed ones, which are short.

mod mixed;

use crate::world::World;

/// A story's name, and what happens in it.
pub(crate) type Story = (&'static str, fn(&mut World));

/// Every one.
pub(crate) const ALL: &[Story] = &[("mixed", mixed::tell)];
