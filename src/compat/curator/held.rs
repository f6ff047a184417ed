//! What a value that is entered once holds, as its clones share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A guard, and the releases of earlier ones that are not answered yet: as long as the cluster may not know of them, the
/// value counts as held.
#[derive(Debug)]
pub(super) struct Held<G>(Mutex<Inside<G>>);

#[derive(Debug)]
struct Inside<G> {
    guard: Option<G>,
    giving_back: usize,
}

/// A release on its way; it is over when this is dropped.
pub(super) struct GivingBack<'a, G>(&'a Held<G>);

impl<G> Held<G> {
    fn inside(&self) -> MutexGuard<'_, Inside<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a guard in the place of the one before.
    pub(super) fn put(&self, guard: G) {
        self.inside().guard = Some(guard);
    }

    /// Takes the guard out, to be released while the second part lives.
    pub(super) fn take(&self) -> Option<(G, GivingBack<'_, G>)> {
        let mut inside = self.inside();
        let guard = inside.guard.take()?;
        inside.giving_back += 1;
        Some((guard, GivingBack(self)))
    }

    /// Whether this is so of the guard, or a release is under way.
    pub(super) fn is_held(&self, held: impl FnOnce(&G) -> bool) -> bool {
        let inside = self.inside();
        0 < inside.giving_back || inside.guard.as_ref().is_some_and(held)
    }

    /// What can be read off the guard.
    pub(super) fn of<T>(&self, read: impl FnOnce(&G) -> Option<T>) -> Option<T> {
        self.inside().guard.as_ref().and_then(read)
    }
}

impl<G> Default for Held<G> {
    fn default() -> Self {
        Self(Mutex::new(Inside { guard: None, giving_back: 0 }))
    }
}

impl<G> Drop for GivingBack<'_, G> {
    fn drop(&mut self) {
        self.0.inside().giving_back -= 1;
    }
}
