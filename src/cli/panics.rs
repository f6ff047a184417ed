//! A panic ends the process, wherever it happens: a task that died silently would leave a lock half held. Only where
//! a catch is armed is it an error like others.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::service::Word;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic prints itself and ends the process with the exit code for internal errors.
pub fn end_the_process() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if ARMED.get() {
            return;
        }
        print(panic);
        std::process::exit(i32::from(Word::Internal.row().exit));
    }));
}

/// Runs work whose panics are caught, and answers `None` for one that did.
pub fn catch<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = ARMED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    ARMED.set(before);
    outcome.ok()
}
