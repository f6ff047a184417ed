//! The hold of a lock that is not reentrant, which the clones of the lock share.

use crate::client::HoldWatch;
use crate::mutex::Mutex;

/// A guard, and the releases in progress. The lock counts as held until the cluster has answered the last of them.
#[derive(Debug)]
pub(super) struct Held<G>(Mutex<Inside<G>>);

#[derive(Debug)]
struct Inside<G> {
    guard: Option<G>,
    /// Number of calls that release a guard.
    giving_back: usize,
    /// The holds whose release was not answered before its call returned.
    unanswered: Vec<HoldWatch>,
}

/// The call of a release, which ends when this is dropped, and the holds that it releases.
pub(super) struct GivingBack<'a, G>(&'a Held<G>, Vec<HoldWatch>);

impl<G> Held<G> {
    /// Stores a guard in place of the previous one.
    pub(super) fn put(&self, guard: G) {
        self.0.lock().guard = Some(guard);
    }

    /// Takes the guard out for a release of its holds, whose call ends when the second value is dropped.
    pub(super) fn take(&self, holds: impl FnOnce(&G) -> Vec<HoldWatch>) -> Option<(G, GivingBack<'_, G>)> {
        let mut inside = self.0.lock();
        let guard = inside.guard.take()?;
        inside.giving_back += 1;
        let holds = holds(&guard);
        Some((guard, GivingBack(self, holds)))
    }

    /// Whether the guard meets the condition, or a release is in progress.
    pub(super) fn is_held(&self, held: impl FnOnce(&G) -> bool) -> bool {
        let inside = self.0.lock();
        0 < inside.giving_back || inside.is_unanswered() || inside.guard.as_ref().is_some_and(held)
    }

    /// Whether a release continues without its call.
    pub(super) fn is_unanswered(&self) -> bool {
        self.0.lock().is_unanswered()
    }

    /// Reads a value from the guard, if there is one.
    pub(super) fn of<T>(&self, read: impl FnOnce(&G) -> Option<T>) -> Option<T> {
        self.0.lock().guard.as_ref().and_then(read)
    }
}

impl<G> Inside<G> {
    fn is_unanswered(&self) -> bool {
        self.unanswered.iter().any(HoldWatch::is_changing)
    }
}

impl<G> Default for Held<G> {
    fn default() -> Self {
        Self(Mutex::new(Inside { guard: None, giving_back: 0, unanswered: Vec::new() }))
    }
}

impl<G> Drop for GivingBack<'_, G> {
    fn drop(&mut self) {
        let mut inside = self.0.0.lock();
        inside.giving_back -= 1;
        inside.unanswered.append(&mut self.1);
        inside.unanswered.retain(HoldWatch::is_changing);
    }
}
