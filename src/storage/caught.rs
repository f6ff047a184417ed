//! Work that may panic, and whose panic is an error like others: sled on damaged files, or on a disk that fails while it is
//! closed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would be caught here. A program that ends itself at every panic asks this first.
#[must_use]
pub fn panics_are_caught() -> bool {
    CAUGHT.get()
}

/// Does the work, and answers `None` where it panicked.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    outcome.ok()
}

/// A value that may panic when it is dropped. Then it is dropped as far as it goes, and nobody hears of it.
#[derive(Debug)]
pub(super) struct DropCaught<T>(Option<T>);

impl<T> DropCaught<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn get(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> Drop for DropCaught<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        caught(|| drop(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as sled does where its last sync fails");
        }
    }

    /// A caught panic is an answer, whoever asks meanwhile learns that it will be, and afterwards that it would not.
    #[test]
    fn a_panic_is_an_answer() {
        assert_eq!(caught(|| 7), Some(7));
        assert_eq!(caught(|| assert!(!panics_are_caught(), "it is caught")), None);
        assert!(!panics_are_caught());
    }

    /// What panics when it is dropped harms nobody, not even while another panic goes through.
    #[test]
    fn a_drop_that_panics_harms_nobody() {
        drop(DropCaught::new(Bomb));
        let both = || {
            let _bomb = DropCaught::new(Bomb);
            panic!("another");
        };
        assert_eq!(caught(both), None::<()>);
    }
}
