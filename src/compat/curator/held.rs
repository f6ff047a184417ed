//! The hold of a lock that is not reentrant, which the clones of the lock share.

use crate::mutex::Mutex;

/// A guard, and the number of releases in progress. The lock counts as held until the last of them returns.
#[derive(Debug)]
pub(super) struct Held<G>(Mutex<Inside<G>>);

#[derive(Debug)]
struct Inside<G> {
    guard: Option<G>,
    giving_back: usize,
}

/// A release in progress, which ends when this is dropped.
pub(super) struct GivingBack<'a, G>(&'a Held<G>);

impl<G> Held<G> {
    /// Stores a guard in place of the previous one.
    pub(super) fn put(&self, guard: G) {
        self.0.lock().guard = Some(guard);
    }

    /// Takes the guard out for a release. The release is in progress until the second value is dropped.
    pub(super) fn take(&self) -> Option<(G, GivingBack<'_, G>)> {
        let mut inside = self.0.lock();
        let guard = inside.guard.take()?;
        inside.giving_back += 1;
        Some((guard, GivingBack(self)))
    }

    /// Whether the guard meets the condition, or a release is in progress.
    pub(super) fn is_held(&self, held: impl FnOnce(&G) -> bool) -> bool {
        let inside = self.0.lock();
        0 < inside.giving_back || inside.guard.as_ref().is_some_and(held)
    }

    /// Reads a value from the guard, if there is one.
    pub(super) fn of<T>(&self, read: impl FnOnce(&G) -> Option<T>) -> Option<T> {
        self.0.lock().guard.as_ref().and_then(read)
    }
}

impl<G> Default for Held<G> {
    fn default() -> Self {
        Self(Mutex::new(Inside { guard: None, giving_back: 0 }))
    }
}

impl<G> Drop for GivingBack<'_, G> {
    fn drop(&mut self) {
        self.0.0.lock().giving_back -= 1;
    }
}
