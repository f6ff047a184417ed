//! The command line: options become calls of the client, answers become lines and exit codes.
//!
//! Knows: limits, model, codec's format number, clock, service, client, config, rpc, http, and the node that it starts.
//! Never: what happens inside those rooms.
//!
//! Nothing here is a stable interface for Rust programs; the command line itself is, as the manual has it.

mod acting;
mod backup;
mod bench;
mod cluster;
mod connect;
mod dev;
mod explain;
mod failure;
mod history;
mod host;
mod lease;
pub mod lock;
mod logging;
mod look;
mod member;
mod options;
mod output;
pub mod panics;
mod parse;
mod ports;
mod position;
mod serve;
mod shapes;
mod who;
mod workers;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::error::ErrorKind;
use tokio::runtime::Runtime;

use connect::connect;
use failure::Failure;
use options::{Command, Common, ConfigCommand, Options};
use output::Output;

use crate::service::ErrorCode as Word;

/// Done; the answer is yes.
const YES: u8 = 0;
/// The answer is no.
const NO: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 64;
/// Exit code where what was given is not acceptable: a damaged backup.
const REFUSED: u8 = 65;

/// Runs the program to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let (options, in_json) = parse(std::env::args_os().collect());
    let options = match options {
        Ok(options) => options,
        Err(error) => return explain(&error, in_json),
    };
    // The shim becomes another program: nothing of this one may be started for it.
    if let Command::Child(shim) = &options.command {
        return ExitCode::from(lock::become_command(shim, options.common.json));
    }
    // No thread may run beside its own, whose end is the command's.
    if let Command::Guardian(guardian) = &options.command {
        return ExitCode::from(lock::guard(guardian, options.common.json));
    }
    panics::end_the_process();
    logging::start(options.common.verbose);
    let output = Output::new(options.common.json);
    let code = run(options, &output).unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit()
    });
    ExitCode::from(code)
}

/// The options, and whether errors of them are to be JSON.
fn parse(arguments: Vec<OsString>) -> (Result<Options, clap::Error>, bool) {
    let mut program = options::command();
    program.build();
    let plain = lock::ask_for_json(&arguments);
    match lock::with_dashes(&program, arguments) {
        Ok(arguments) => {
            let in_json = lock::ask_for_json(&arguments);
            (options::parse(arguments), in_json)
        }
        Err(error) => (Err(error), plain),
    }
}

/// Help and version are answers; everything else is a usage error, which is 64 here and 2 in clap.
fn explain(error: &clap::Error, in_json: bool) -> ExitCode {
    if error.use_stderr() && in_json {
        Output::new(true).failure(&Failure::usage(what_is_wrong(error)));
    } else {
        // Where it cannot be printed, the exit code says it.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { USAGE } else { YES })
}

/// A usage error in one line, without the usage itself.
fn what_is_wrong(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing: see --help".to_owned();
    }
    let text = error.to_string();
    let about_usage = |part: &&str| part.starts_with("Usage:") || part.starts_with("For more information");
    let parts = text.trim_start_matches("error: ").split("\n\n").take_while(|part| !about_usage(part));
    parts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn run(options: Options, output: &Output) -> Result<u8, Failure> {
    let common = &options.common;
    connect::refuse_what_is_not_there()?;
    match options.command {
        Command::Completions(options) => cluster::completions(&options, output),
        Command::Config(ConfigCommand::Check(options)) => cluster::config_check(&options, output),
        Command::Version => cluster::version(output),
        Command::Restore(options) => backup::restored(&options, output),
        Command::Verify(options) => history::verify(&options, output),
        Command::Dev(options) => on_runtime(workers::spread()?, dev::dev(&options, output)),
        Command::Serve(options) => on_runtime(workers::spread()?, serve::serve(&options)),
        Command::Lock(options) => on_runtime(workers::anywhere()?, lock::lock(options, common, output)),
        Command::Elect(options) => on_runtime(workers::anywhere()?, lock::elect(options, common, output)),
        Command::Child(shim) => Ok(lock::become_command(&shim, common.json)),
        Command::Guardian(guardian) => Ok(lock::guard(&guardian, common.json)),
        other @ (Command::Acquire(_)
        | Command::Refresh(_)
        | Command::Release(_)
        | Command::Check(_)
        | Command::Wait(_)
        | Command::Ls(_)
        | Command::Show(_)
        | Command::Explain(_)
        | Command::Sessions
        | Command::Session(_)
        | Command::Watch(_)
        | Command::History(_)
        | Command::Break(_)
        | Command::Ask(_)
        | Command::HandOver(_)
        | Command::Semaphore(_)
        | Command::Leader(_)
        | Command::Status
        | Command::Transfer(_)
        | Command::Features(_)
        | Command::Settings(_)
        | Command::Member(_)
        | Command::Backup(_)) => on_runtime(workers::anywhere()?, ask(other, common, output)),
        other @ Command::Bench(_) => on_runtime(workers::spread()?, ask(other, common, output)),
    }
}

/// Commands that need no more than a client.
async fn ask(command: Command, common: &Common, output: &Output) -> Result<u8, Failure> {
    let client = connect(common)?;
    let namespace = &common.namespace;
    match command {
        Command::Acquire(options) => lease::acquire(&client, namespace, options, output).await,
        Command::Refresh(options) => lease::refresh(&client, namespace, options, output).await,
        Command::Release(options) => lease::release(&client, options, output).await,
        Command::Check(options) => lease::check(&client, options, output).await,
        Command::Wait(options) => lease::wait(&client, namespace, options, output).await,
        Command::Ls(options) => look::list(&client, options, output).await,
        Command::Show(options) => look::show(&client, options, output).await,
        Command::Explain(options) => explain::explain(&client, options, output).await,
        Command::Sessions => look::sessions(&client, output).await,
        Command::Session(command) => acting::on_session(&client, command, output).await,
        Command::Watch(options) => look::watch(&client, options, output).await,
        Command::History(options) => history::history(&client, options, output).await,
        Command::Break(options) => acting::break_hold(&client, options, output).await,
        Command::Ask(options) => acting::ask(&client, namespace, options, output).await,
        Command::HandOver(options) => acting::hand_over(&client, namespace, options, output).await,
        Command::Semaphore(options) => acting::semaphore(&client, namespace, options, output).await,
        Command::Leader(options) => acting::leader(&client, namespace, options, output).await,
        Command::Status => cluster::status(&client, output).await,
        Command::Transfer(options) => cluster::transfer(&client, &options, output).await,
        Command::Features(options) => cluster::features(&client, &options, output).await,
        Command::Settings(options) => cluster::settings(&client, &options, output).await,
        Command::Member(command) => member::member(&client, command, output).await,
        Command::Backup(options) => backup::backup(&client, &options, output).await,
        Command::Bench(options) => bench::bench(common, &options, output).await,
        Command::Dev(_)
        | Command::Serve(_)
        | Command::Lock(_)
        | Command::Elect(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Version
        | Command::Restore(_)
        | Command::Verify(_)
        | Command::Child(_)
        | Command::Guardian(_) => Err(Failure::new(Word::Internal, "a command that is no question was asked")),
    }
}

/// Runs on this thread, with workers beside it. What is left at the end, such as a read of standard input that
/// nobody answers, is left behind with the process.
fn on_runtime(runtime: Runtime, work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let code = runtime.block_on(work);
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests;
