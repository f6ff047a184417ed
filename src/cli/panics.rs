//! A panic ends the process, wherever it happens: a task that died silently would leave a lock half held. Only where the
//! storage catches it is it an error like others.

use crate::service::ErrorCode;
use crate::storage::panics_are_caught;

/// From now on a panic prints itself and ends the process with the exit code for internal errors.
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
