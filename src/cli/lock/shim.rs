//! The process between the guardian and its command: it is killed with the guardian, takes the terminal, and becomes
//! the command. It does in safe code what must happen between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpgrp};

use super::options::COMMAND;
use super::terminal::Terminal;
use crate::cli::error::Failure;
use crate::cli::output::Output;

/// Name of the hidden command that is the shim.
pub const SHIM_COMMAND: &str = "__child";
/// Exit code for a command that was found but could not be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// Exit code for a command that was not found.
pub(super) const NOT_FOUND: u8 = 127;

/// What the guardian passes to the shim.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct ShimOptions {
    /// Process id of the guardian.
    #[arg(long)]
    pub parent: u32,
    /// Take the terminal's foreground.
    #[arg(long)]
    pub foreground: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Becomes the command. Returns an exit code only after a failure, which it prints as JSON or as a sentence.
#[must_use]
pub fn become_command(options: &ShimOptions, json: bool) -> u8 {
    let complain = |failure: Failure, code| {
        Output::new(json).failure(&Failure { exit: Some(code), ..failure });
        code
    };
    let stopped = |problem: String| complain(Failure::stopped(problem), NOT_EXECUTABLE);
    if let Err(error) = bind_to_parent(options.parent) {
        return stopped(format!("cannot be bound to its guardian's life: {error}"));
    }
    if options.foreground
        && let Some(terminal) = Terminal::open()
        && let Err(error) = terminal.give_to(getpgrp())
    {
        return stopped(format!("cannot take the terminal: {error}"));
    }
    let Some((program, arguments)) = options.command.split_first() else {
        return complain(Failure::usage(COMMAND, "no command"), NOT_FOUND);
    };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    complain(Failure::usage(COMMAND, format!("{}: {error}", program.to_string_lossy())), code)
}

/// Requests that the system kills this process when the guardian ends. Fails if the guardian has already ended.
#[cfg(target_os = "linux")]
fn bind_to_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if i64::from(now) == i64::from(parent) {
        return Ok(());
    }
    Err(io::Error::other("it is gone already"))
}

/// Does nothing. Other systems have no such signal, so a killed guardian leaves its command running.
#[cfg(not(target_os = "linux"))]
fn bind_to_parent(_parent: u32) -> io::Result<()> {
    let _ = Signal::KILL;
    Ok(())
}
