//! The commands, and the options that all of them have.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, CommandFactory, FromArgMatches, Id, Parser, Subcommand};

use super::args::Common;
use super::lock::{
    ELECT_USAGE, ElectOptions, GUARDIAN_COMMAND, GuardianOptions, LOCK_USAGE, LockOptions, SHIM_COMMAND, ShimOptions,
};
use super::{bench, cmd, doctor, drill, top};

/// A replicated lock service: fair queues, fencing tokens, sessions and leases.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, propagate_version = true, max_term_width = 100)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Reads a command line.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    // The variables are for the run, which passes on to its internal commands what they need.
    let is_internal = arguments.get(1).is_some_and(|name| name == GUARDIAN_COMMAND || name == SHIM_COMMAND);
    let mut command = command_with(&if is_internal { common_options() } else { given(&arguments) });
    let matches = command.try_get_matches_from_mut(arguments)?;
    let mut options = Options::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    options.common.endpoints_given = matches.value_source("endpoints") != Some(ValueSource::DefaultValue);
    Ok(options)
}

/// Returns the common options that are on the command line. The variables of these do not count, even if their values
/// are wrong. For a wrong command line it returns none.
fn given(arguments: &[OsString]) -> Vec<Id> {
    let common = common_options();
    let Ok(matches) = command_with(&common).try_get_matches_from(arguments) else { return Vec::new() };
    let is_given = |id: &Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    common.into_iter().filter(is_given).collect()
}

fn common_options() -> Vec<Id> {
    let whole = Options::command();
    whole.get_arguments().filter(|option| option.is_global_set()).map(|option| option.get_id().clone()).collect()
}

/// Returns all commands. The help of each one names the common options in one line, and the program's own help explains
/// them.
pub(super) fn command() -> clap::Command {
    command_with(&[])
}

/// Returns all commands, with these common options without their variables.
fn command_with(given: &[Id]) -> clap::Command {
    fn with_hidden(command: clap::Command, common: &[Arg]) -> clap::Command {
        // `restore` has an option with the same name as a common one.
        let own: Vec<_> = command.get_arguments().map(|option| option.get_id().clone()).collect();
        let others = common.iter().filter(|option| !own.contains(option.get_id()));
        let hidden: Vec<_> = others.map(|option| option.clone().hide(true)).collect();
        let command = command.args(hidden).after_help(COMMON_IN_SHORT).mut_args(with_dash);
        command.mut_subcommands(|nested| with_hidden(nested, common))
    }
    // A negative duration is refused as a duration. As an option it would get the advice to put `--` before it.
    fn with_dash(argument: Arg) -> Arg {
        let is_duration = argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "DURATION"));
        if is_duration && !argument.is_positional() { argument.allow_hyphen_values(true) } else { argument }
    }
    let without_variable =
        |option: Arg| if given.contains(option.get_id()) { option.env(None::<&'static str>) } else { option };
    let whole = Options::command().mut_args(with_dash).mut_args(without_variable);
    let common: Vec<_> = whole.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    whole.mut_subcommands(|command| with_hidden(command, &common))
}

const COMMON_IN_SHORT: &str = "Common options, see lockkeeper --help: -e --endpoints, --cluster, --ca --cert --key, \
                               --auth-token-file, -N --namespace, -t --timeout, -j --json, -v";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run an embedded cluster to try things out
    Dev(cmd::dev::DevOptions),
    /// Kill nodes of a cluster on this machine, and judge what its clients observe
    Drill(drill::DrillOptions),
    /// Run one node
    Serve(cmd::serve::ServeOptions),
    /// Run a command while holding a lock
    #[command(override_usage = LOCK_USAGE)]
    Lock(LockOptions),
    /// Take a lease without a session; prints TOKEN HANDLE
    Acquire(cmd::acquire::AcquireOptions),
    /// Extend a lease by its handle
    Refresh(cmd::refresh::RefreshOptions),
    /// Release a lease by its handle
    Release(cmd::release::ReleaseOptions),
    /// Check whether a token is the current one; exit code 0 yes, 1 no
    Check(cmd::check::CheckOptions),
    /// Return when a name has no holder and no lock-delay; exit code 75 if not in time
    Wait(cmd::wait::WaitOptions),
    /// List locks in use
    Ls(cmd::ls::ListOptions),
    /// Show one lock, its holders and its waiters
    Show(cmd::show::ShowOptions),
    /// Explain which session waits for which, why, and what would end the wait
    Explain(cmd::explain::ExplainOptions),
    /// List the sessions of the namespace
    Sessions,
    /// Act on a session of another client
    #[command(subcommand)]
    Session(cmd::session::SessionCommand),
    /// Print what happens to locks and sessions, as it happens
    Watch(cmd::watch::WatchOptions),
    /// List the holders of a lock, from the past to now
    History(cmd::history::HistoryOptions),
    /// Prove an export of history, or name what is wrong with it
    Verify(cmd::verify::VerifyOptions),
    /// End a hold without its holder; the next waiter gets the lock
    Break(cmd::break_hold::BreakOptions),
    /// Ask a holder to give up its lock
    Ask(cmd::ask::AskOptions),
    /// Make another session the holder, without a gap; prints the new TOKEN
    #[command(name = "handover")]
    HandOver(cmd::hand_over::HandOverOptions),
    /// Set the limit of a semaphore, or remove it
    Semaphore(cmd::semaphore::SemaphoreOptions),
    /// Run a command while being the leader under a name
    #[command(override_usage = ELECT_USAGE)]
    Elect(ElectOptions),
    /// Print the value of the leader under a name; exit code 1 if there is none
    Leader(cmd::leader::LeaderOptions),
    /// Show the leader and the health of the nodes
    Status,
    /// Show nodes and locks as they change, in a terminal
    Top(top::TopOptions),
    /// Check a node and its cluster, and advise; exit code 1 if something must change
    Doctor(doctor::DoctorOptions),
    /// Hand leadership to another node
    Transfer(cmd::transfer::TransferOptions),
    /// Show the cluster's feature level and what its nodes support, or raise it
    Features(cmd::features::FeaturesOptions),
    /// List the settings of the whole cluster, or change one
    Settings(cmd::settings::SettingsOptions),
    /// List the nodes of the cluster, add one, promote or remove one
    #[command(subcommand)]
    Member(cmd::member::MemberCommand),
    /// Write a backup of the whole cluster
    Backup(cmd::backup::BackupOptions),
    /// Make the first node of a new cluster from a backup; prints its config
    Restore(cmd::restore::RestoreOptions),
    /// Make, renew and list the certificates of a cluster
    Certs(cmd::certs::CertsOptions),
    /// Make and check a file of principals and rules, add and remove tokens
    #[command(subcommand)]
    Auth(cmd::auth::AuthCommand),
    /// Check the audit log of a node
    #[command(subcommand)]
    Audit(cmd::audit::AuditCommand),
    /// Measure this cluster
    Bench(bench::BenchOptions),
    /// Check configuration files
    #[command(subcommand)]
    Config(cmd::config::ConfigCommand),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsOptions),
    /// Print the versions of the program, the protocol and the formats
    Version,
    #[command(name = SHIM_COMMAND, hide = true)]
    Child(ShimOptions),
    #[command(name = GUARDIAN_COMMAND, hide = true)]
    Guardian(GuardianOptions),
}
