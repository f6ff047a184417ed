//! The `lockkeeper` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper::cli::main()
}
