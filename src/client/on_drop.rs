//! Work that remains when a caller drops a value.

use std::ops::{Deref, DerefMut};

/// A value with a function that runs when the value is dropped, unless it was disarmed.
#[derive(Debug)]
pub(crate) struct OnDrop<T> {
    value: T,
    run: Option<fn(&mut T)>,
}

impl<T> OnDrop<T> {
    /// Wraps the value; the function runs on it when it is dropped.
    pub(crate) fn new(value: T, run: fn(&mut T)) -> Self {
        Self { value, run: Some(run) }
    }

    /// Disarms the function: dropping the value then runs nothing.
    pub(crate) fn disarm(&mut self) {
        self.run = None;
    }

    /// Runs the function now. Dropping the value then runs nothing.
    pub(crate) fn run_now(&mut self) {
        if let Some(run) = self.run.take() {
            run(&mut self.value);
        }
    }
}

impl<T> Deref for OnDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OnDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for OnDrop<T> {
    fn drop(&mut self) {
        self.run_now();
    }
}
