//! A panic on any thread ends the process, because a dead task could leave a lock in an inconsistent state. Panics that
//! the storage module catches become errors instead.

use crate::service::ErrorCode;
use crate::storage::panics_are_caught;

/// Makes every later panic print its message and end the process with the exit code for internal errors.
pub fn end_the_process() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panics_are_caught() {
            return;
        }
        print(panic);
        std::process::exit(i32::from(ErrorCode::Internal.row().exit));
    }));
}
