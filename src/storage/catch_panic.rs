//! Turns a panic into an error. sled panics on damaged files, and when a disk fails while sled closes its files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::limits::MIRROR_CLOSE_WAIT_MS;

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread is caught. A panic hook that ends the process checks this first.
#[must_use]
pub fn panics_are_caught() -> bool {
    CATCHES.get()
}

/// Calls `work`. Returns `None` if it panicked.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CATCHES.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(before);
    outcome.ok()
}

/// A value whose drop may panic or block. sled waits without a time limit for data that it could not write.
///
/// A separate thread drops the value. The owner waits for that thread for at most [`MIRROR_CLOSE_WAIT_MS`]. After that
/// the thread continues alone, and the files of the value stay open until the process ends.
#[derive(Debug)]
pub(super) struct DropCaught<T: Send + 'static> {
    /// `Some` until the drop.
    value: Option<T>,
    /// How long the owner waits at most for the drop of the value.
    wait: Duration,
}

impl<T: Send + 'static> DropCaught<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Some(value), wait: Duration::from_millis(MIRROR_CLOSE_WAIT_MS) }
    }

    pub(super) fn get(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for DropCaught<T> {
    fn drop(&mut self) {
        let (value, (sender, ended)) = (self.value.take(), channel::<()>());
        let close = move || {
            caught(|| drop(value));
            drop(sender);
        };
        // If no thread can be started, the closure is dropped here, and the value with it.
        if caught(|| thread::Builder::new().name("lockkeeper-close".to_owned()).spawn(close))
            .is_some_and(|spawned| spawned.is_ok())
        {
            // No message is sent: the wait ends when the sender is dropped.
            let _ = ended.recv_timeout(self.wait);
        }
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

    /// A panic becomes `None`. `panics_are_caught` returns true while the work runs, and false afterwards.
    #[test]
    fn a_panic_becomes_none() {
        assert_eq!(caught(|| 7), Some(7));
        assert_eq!(caught(|| assert!(!panics_are_caught(), "it is caught")), None);
        assert!(!panics_are_caught());
    }

    /// A value whose drop never returns does not block its owner, so a node whose disk failed still stops.
    #[test]
    fn a_drop_that_never_ends_is_left_behind() {
        struct Stuck(std::sync::mpsc::Receiver<()>);
        impl Drop for Stuck {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (release, stuck) = channel();
        drop(DropCaught { value: Some(Stuck(stuck)), wait: Duration::from_millis(1) });
        release.send(()).expect("the drop still waits");
    }

    /// A value that panics when it is dropped has no effect on its owner, even during another panic.
    #[test]
    fn a_drop_that_panics_is_contained() {
        drop(DropCaught::new(Bomb));
        let both = || {
            let _bomb = DropCaught::new(Bomb);
            panic!("another");
        };
        assert_eq!(caught(both), None::<()>);
    }
}
