//! The command line: options become calls of the client, answers become lines and exit codes.
//!
//! Knows: limits, model, codec's format number, the errors of storage, clock, service, client, config, rpc, http, and
//! the node that it starts.
//! Never: the inside of those modules.
//!
//! The command line is a stable interface, described in the manual. The Rust items here are not.

mod args;
mod bench;
mod blocker;
mod cmd;
mod connect;
mod doctor;
mod drill;
mod error;
mod exposition;
mod files;
pub mod lock;
mod logging;
mod options;
mod output;
mod runtime;
mod server;
mod sockets;
mod systemd;
mod text;
mod top;
mod who;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::fs::Mode;
use tokio::runtime::Runtime;

use args::Common;
use cmd::audit::AuditCommand;
use cmd::auth::AuthCommand;
use cmd::config::ConfigCommand;
use connect::{Client, connect};
use error::{Failure, USAGE, YES};
use options::{Command, Options};
use output::Output;

/// Runs the program, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let (options, in_json) = parse(std::env::args_os().collect());
    let options = match options {
        Ok(options) => options,
        Err(error) => return print_error_or_help(&error, in_json),
    };
    // The shim replaces itself with another program, so it must run before this one starts any thread or runtime.
    if let Command::Child(shim) = &options.command {
        return ExitCode::from(lock::become_command(shim, options.common.json));
    }
    // The guardian must have only one thread, because the kernel kills the command when the thread that started it
    // ends.
    if let Command::Guardian(guardian) = &options.command {
        return ExitCode::from(lock::guard(guardian, options.common.json));
    }
    runtime::panics_end_the_process();
    let output = Output::new(options.common.json);
    // Commands under a lock may print to the same pipe: if its reader stops, the run must end nevertheless.
    let is_lock = matches!(options.command, Command::Lock(_) | Command::Elect(_));
    let code = logging::start(options.common.verbose).and_then(|()| run(options, &output)).unwrap_or_else(|failure| {
        if is_lock {
            output.failure_in_time(&failure);
        } else {
            output.failure(&failure);
        }
        failure.exit()
    });
    ExitCode::from(code)
}

/// Returns the parsed options, and whether errors about them are printed as JSON. The result file of a run gets an
/// error about its command line, too.
fn parse(mut arguments: Vec<OsString>) -> (Result<Options, clap::Error>, bool) {
    let mut program = options::command();
    program.build();
    let divided = lock::add_dashes(&program, &mut arguments);
    let parsed = divided.and_then(|()| options::parse(arguments.iter().cloned())).map_err(|error| {
        if let Some(file) = lock::result_file(&program, &arguments).filter(|_| error.use_stderr()) {
            lock::write_usage_error(&file);
        }
        with_tip(proposing(error), &arguments, std::env::vars_os())
    });
    (parsed, lock::ask_for_json(&program, &arguments))
}

/// Leaves out the internal commands among those that the error proposes.
fn proposing(mut error: clap::Error) -> clap::Error {
    let internal = |name: &str| [lock::SHIM_COMMAND, lock::GUARDIAN_COMMAND].contains(&name);
    let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) else { return error };
    names.retain(|name| !internal(name));
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    } else if matches!(error.get(ContextKind::Suggested), Some(ContextValue::StyledStrs(tips)) if tips.is_empty()) {
        // An empty list of tips would be printed as an empty line.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Adds the names of variables to an error about a value: the one that the value comes from, and empty ones, because
/// each counts as the value of its option.
fn with_tip(
    mut error: clap::Error,
    arguments: &[OsString],
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> clap::Error {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return error;
    }
    let (mut empty, mut tips) = (Vec::new(), Vec::new());
    let set = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, value) in set.filter(|(name, _)| name.starts_with("LOCKKEEPER_")) {
        let is_wrong =
            || matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(wrong)) if *wrong == value);
        // An option on the line ends with its value, or the next argument does.
        let on_line = || arguments.iter().any(|argument| argument.to_string_lossy().ends_with(&value));
        if value.is_empty() {
            empty.push(name);
        } else if is_wrong() && Some(&name) == variable(&error).as_ref() && !on_line() {
            tips.push(format!("it comes from {name}"));
        }
    }
    if !empty.is_empty() {
        tips.push(format!("unset {}, or give it a value: it is empty", empty.join(" and ")));
    }
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns the name of the variable for the option that an error is about.
fn variable(error: &clap::Error) -> Option<String> {
    let option = wrong_option(error)?;
    let name = option.trim_matches(['-', '<', '>']).replace('-', "_").to_uppercase();
    Some(format!("LOCKKEEPER_{name}"))
}

/// Prints help, a version or a usage error. The exit code of a usage error is 64, while clap would use 2.
fn print_error_or_help(error: &clap::Error, in_json: bool) -> ExitCode {
    if error.use_stderr() && in_json {
        // An error without an option is about the command.
        let field = wrong_option(error).unwrap_or_else(|| "<COMMAND>".to_owned());
        Output::new(true).failure(&Failure::usage(&field, what_is_wrong(error)));
    } else if error.kind() == ErrorKind::MissingSubcommand {
        // If the text cannot be printed, only the exit code remains.
        let _ = write!(io::stderr(), "{}", help_of(error));
    } else {
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { USAGE } else { YES })
}

/// Returns the help of the command whose subcommand is missing, as clap prints it for a line without any option.
fn help_of(error: &clap::Error) -> StyledStr {
    let mut program = options::command();
    program.build();
    let path = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(path)) => path.as_str(),
        Some(_) | None => "",
    };
    let mut command = &program;
    for name in path.split(' ').skip(1) {
        command = command.find_subcommand(name).unwrap_or(command);
    }
    command.clone().render_help()
}

/// Returns a usage error as one line, without the usage itself.
fn what_is_wrong(error: &clap::Error) -> String {
    if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        return "a command is missing: see --help".to_owned();
    }
    let text = error.to_string();
    let about_usage = |part: &&str| part.starts_with("Usage:") || part.starts_with("For more information");
    let parts = text.trim_start_matches("error: ").split("\n\n").take_while(|part| !about_usage(part));
    let lines = parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the option or value that a usage error is about, as the usage shows it: `--ttl` or `<TOKEN>`.
fn wrong_option(error: &clap::Error) -> Option<String> {
    let shown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(one)) => Some(one),
        Some(ContextValue::Strings(several)) => several.first(),
        Some(_) | None => None,
    };
    // The name of an option's value follows, or an alternative.
    let first = shown?.split([' ', '=', '|']).next()?;
    let value = first.strip_prefix(['<', '[']).map(|name| name.trim_end_matches(['>', ']', '.']));
    Some(value.map_or_else(|| first.to_owned(), |name| format!("<{name}>")))
}

fn run(options: Options, output: &Output) -> Result<u8, Failure> {
    let common = &options.common;
    if matches!(options.command, Command::Serve(_) | Command::Dev(_) | Command::Backup(_) | Command::Restore(_)) {
        create_private_files();
    }
    match options.command {
        Command::Completions(shell) => cmd::completions::run(&shell, &options::command(), output),
        Command::Config(ConfigCommand::Check { file }) => cmd::config::check(&file, output),
        Command::Audit(AuditCommand::Verify { files }) => cmd::audit::verify(&files, output),
        Command::Certs(options) => cmd::certs::run(&options, output),
        Command::Auth(AuthCommand::Whoami) => ask(common, async |client| cmd::auth::whoami(client, output).await),
        Command::Auth(AuthCommand::File(command)) => cmd::auth::run(&command, output),
        Command::Version => cmd::version::run(output),
        Command::Restore(options) => cmd::restore::run(&options, output),
        Command::Verify(options) => cmd::verify::run(&options, output),
        Command::Child(shim) => Ok(lock::become_command(&shim, common.json)),
        Command::Guardian(guardian) => Ok(lock::guard(&guardian, common.json)),
        Command::Dev(options) => on_runtime(runtime::spread()?, cmd::dev::run(&options, output)),
        Command::Drill(options) => on_runtime(runtime::anywhere()?, drill::run(&options, output)),
        Command::Serve(options) => on_runtime(runtime::spread()?, cmd::serve::run(&options)),
        Command::Bench(options) => on_runtime(runtime::spread()?, bench::bench(common, &options, output)),
        Command::Lock(options) => on_runtime(runtime::anywhere()?, lock::lock(options, common, output)),
        Command::Elect(options) => on_runtime(runtime::anywhere()?, lock::elect(options, common, output)),
        Command::Acquire(options) => ask(common, async |client| cmd::acquire::run(client, options, output).await),
        Command::Refresh(options) => ask(common, async |client| cmd::refresh::run(client, options, output).await),
        Command::Release(options) => ask(common, async |client| cmd::release::run(client, options, output).await),
        Command::Check(options) => ask(common, async |client| cmd::check::run(client, options, output).await),
        Command::Wait(options) => ask(common, async |client| cmd::wait::run(client, options, output).await),
        Command::Ls(options) => ask(common, async |client| cmd::ls::run(client, options, output).await),
        Command::Show(options) => ask(common, async |client| cmd::show::run(client, options, output).await),
        Command::Explain(options) => ask(common, async |client| cmd::explain::run(client, options, output).await),
        Command::Sessions => ask(common, async |client| cmd::sessions::run(client, output).await),
        Command::Session(command) => ask(common, async |client| cmd::session::run(client, command, output).await),
        Command::Watch(options) => ask(common, async |client| cmd::watch::run(client, options, output).await),
        Command::History(options) => ask(common, async |client| cmd::history::run(client, options, output).await),
        Command::Break(options) => ask(common, async |client| cmd::break_hold::run(client, options, output).await),
        Command::Ask(options) => ask(common, async |client| cmd::ask::run(client, options, output).await),
        Command::HandOver(options) => ask(common, async |client| cmd::hand_over::run(client, options, output).await),
        Command::Semaphore(options) => ask(common, async |client| cmd::semaphore::run(client, options, output).await),
        Command::Leader(options) => ask(common, async |client| cmd::leader::run(client, options, output).await),
        Command::Top(options) => ask(common, async |client| top::run(client, common, options, output).await),
        Command::Doctor(options) => on_runtime(runtime::anywhere()?, doctor::run(common, &options, output)),
        Command::Status => ask(common, async |client| cmd::status::run(client, output).await),
        Command::Transfer(options) => ask(common, async |client| cmd::transfer::run(client, &options, output).await),
        Command::Features(options) => ask(common, async |client| cmd::features::run(client, &options, output).await),
        Command::Settings(options) => ask(common, async |client| cmd::settings::run(client, &options, output).await),
        Command::Member(command) => ask(common, async |client| cmd::member::run(client, common, command, output).await),
        Command::Backup(options) => ask(common, async |client| cmd::backup::run(client, &options, output).await),
    }
}

/// Makes the files that this process creates from now on accessible to their owner alone: a node's data and a backup
/// contain the handles of clients.
fn create_private_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Runs a command that needs only a client.
fn ask(common: &Common, work: impl AsyncFnOnce(&Client) -> Result<u8, Failure>) -> Result<u8, Failure> {
    on_runtime(runtime::anywhere()?, async { work(&connect(common)?).await })
}

/// Runs the work on this thread, with worker threads. Blocking calls that have not returned by then, such as a read of
/// standard input, end with the process.
fn on_runtime(runtime: Runtime, work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let code = runtime.block_on(work);
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests;
