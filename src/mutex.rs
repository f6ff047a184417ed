//! A mutex without poisoning. Knows: nothing of this crate. Never: waits across an await, for which tokio has a mutex.

use std::sync::{self, MutexGuard, PoisonError};

/// A mutex whose value stays usable after a panic of a thread that held it: each change under a lock of this crate is
/// complete, or the process ends.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until no other thread holds the mutex.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
