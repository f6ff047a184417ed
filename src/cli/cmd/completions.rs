//! `completions`: prints a completion script for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::who::OWN_PROGRAM;

#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsOptions {
    /// Name of the shell
    shell: Shell,
}

/// Prints a completion script.
pub(in crate::cli) fn run(
    options: &CompletionsOptions,
    program: &clap::Command,
    output: &Output,
) -> Result<u8, Failure> {
    output.as_it_is(script(options.shell, program).trim_end())?;
    Ok(YES)
}

/// Returns a script that completes all commands except the hidden ones.
pub(in crate::cli) fn script(shell: Shell, program: &clap::Command) -> String {
    let shown: Vec<_> = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let options: Vec<_> = program.get_arguments().cloned().collect();
    let mut command =
        clap::Command::new(OWN_PROGRAM).version(env!("CARGO_PKG_VERSION")).args(options).subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, OWN_PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
