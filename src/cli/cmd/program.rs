//! `completions` and `version`: a completion script for a shell, and the versions of the program, of the protocol and
//! of stored data.

use clap::Args;
use clap_complete::Shell;
use serde::Serialize;

use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::who::OWN_PROGRAM;
use crate::codec::FORMAT;
use crate::rpc;

#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsOptions {
    /// Name of the shell
    shell: Shell,
}

/// Prints a completion script.
pub(in crate::cli) fn completions(
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

/// The JSON line.
#[derive(Debug, Serialize)]
struct Versions {
    version: &'static str,
    /// The cargo profile of the build.
    profile: &'static str,
    protocol: &'static str,
    protocol_min: u32,
    protocol_max: u32,
    format: u8,
}

/// The name of the protocol, and its lowest and highest version in this program.
const PROTOCOL: (&str, u32, u32) = ("lockkeeper.v1", rpc::PROTOCOL_MIN, rpc::PROTOCOL_MAX);

pub(in crate::cli) fn versions(output: &Output) -> Result<u8, Failure> {
    let (protocol, protocol_min, protocol_max) = PROTOCOL;
    let (version, profile) = (env!("CARGO_PKG_VERSION"), env!("LOCKKEEPER_PROFILE"));
    let versions = Versions { version, profile, protocol, protocol_min, protocol_max, format: FORMAT };
    output.document(&versions, || {
        let formats = format!("protocol {protocol}, versions {protocol_min} to {protocol_max}");
        format!("lockkeeper {version}, built with profile {profile}\n{formats}\nformat of stored bytes {FORMAT}")
    })
}
