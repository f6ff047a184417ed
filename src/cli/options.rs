//! What may be written on the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::acting::{AskOptions, BreakOptions, HandOverOptions, SemaphoreOptions, SessionCommand};
use super::backup::{BackupOptions, RestoreOptions};
use super::bench::BenchOptions;
use super::cluster::{FeaturesOptions, SettingsOptions};
use super::connect::RetryOption;
use super::history::{HistoryOptions, VerifyOptions};
use super::lease::HandleOption;
use super::lock::{ELECT_USAGE, ElectOptions, GuardianOptions, LOCK_USAGE, LockOptions, ShimOptions};
use super::member::MemberCommand;
use super::parse::{duration, handle, lock_name, namespace, port_base, session, token};
use super::position;
use crate::config::Profile;
use crate::model::{FencingToken, Handle, LockName, Namespace, SessionId};

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
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Options::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// All commands. The help of each names the common options in one line, and the program's own help explains them.
pub(super) fn command() -> clap::Command {
    fn with_hidden(command: clap::Command, common: &[Arg]) -> clap::Command {
        // `restore` has an option of its own with the name of a common one.
        let own: Vec<_> = command.get_arguments().map(|option| option.get_id().clone()).collect();
        let others = common.iter().filter(|option| !own.contains(option.get_id()));
        let hidden: Vec<_> = others.map(|option| option.clone().hide(true)).collect();
        command.args(hidden).after_help(COMMON_IN_SHORT).mut_subcommands(|nested| with_hidden(nested, common))
    }
    let whole = Options::command();
    let common: Vec<_> = whole.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    whole.mut_subcommands(|command| with_hidden(command, &common))
}

const COMMON_IN_SHORT: &str =
    "Common options, see lockkeeper --help: -e --endpoints, --cluster, -N --namespace, -t --timeout, -j --json, -v";

/// Common to all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct Common {
    /// Addresses of nodes to ask, separated by commas
    #[arg(
        short,
        long,
        global = true,
        env = "LOCKKEEPER_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603",
        value_name = "HOST:PORT,…"
    )]
    pub(super) endpoints: Vec<String>,
    /// The only cluster to believe: its cluster_id, as `status` shows it [env: LOCKKEEPER_CLUSTER]
    // Read from the environment where it is used: `restore` has an option of this name, which must not be set by it.
    #[arg(long, global = true, value_name = "ID")]
    pub(super) cluster: Option<String>,
    /// Namespace of the locks
    #[arg(short = 'N', long, global = true, env = "LOCKKEEPER_NAMESPACE", default_value = "default", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// Longest time for connecting plus one request, such as 500ms, 10s or 1m; it never bounds a wait or a child
    #[arg(short, long, global = true, env = "LOCKKEEPER_TIMEOUT", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(super) timeout: Duration,
    /// Print answers and errors as JSON, one object a line
    #[arg(short, long, global = true)]
    pub(super) json: bool,
    /// Log to standard error what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// Node *n* listens for clients on this and *n*.
pub(super) const PORT_BASE: u16 = 7600;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run an embedded cluster to try things on
    Dev(DevOptions),
    /// Run one node
    Serve(ServeOptions),
    /// Run a command while holding a lock
    #[command(override_usage = LOCK_USAGE)]
    Lock(LockOptions),
    /// Take a lease without a session; prints TOKEN HANDLE
    Acquire(AcquireOptions),
    /// Prolong a lease by its handle
    Refresh(RefreshOptions),
    /// Give a lease back by its handle
    Release(ReleaseOptions),
    /// Is this token the current one? Exit code 0 yes, 1 no
    Check(CheckOptions),
    /// Return when a name has no holder and no lock-delay; exit code 75 if not in time
    Wait(WaitOptions),
    /// List locks in use
    Ls(ListOptions),
    /// Show one lock: who holds it, who waits
    Show(ShowOptions),
    /// Say who waits for whom, why, and what would end it
    Explain(ExplainOptions),
    /// List sessions
    Sessions,
    /// Act on a session of another client
    #[command(subcommand)]
    Session(SessionCommand),
    /// Print what happens to locks and sessions, as it happens
    Watch(WatchOptions),
    /// List who held a lock, from the past to now
    History(HistoryOptions),
    /// Prove an export of history, or name what is wrong with it
    Verify(VerifyOptions),
    /// End a hold against its holder's will; the next in the queue gets the lock
    Break(BreakOptions),
    /// Ask a holder to give up its lock
    Ask(AskOptions),
    /// Make another session the holder, without a gap; prints the new TOKEN
    #[command(name = "handover")]
    HandOver(HandOverOptions),
    /// Keep the limit of a semaphore, or forget it
    Semaphore(SemaphoreOptions),
    /// Run a command while being the leader under a name
    #[command(override_usage = ELECT_USAGE)]
    Elect(ElectOptions),
    /// Who leads under a name? Prints its value; exit code 1 where nobody does
    Leader(NameOptions),
    /// The cluster: who leads, which nodes are healthy
    Status,
    /// Hand leadership to another node
    Transfer(TransferOptions),
    /// Show the cluster's feature level and what its nodes support, or raise it
    Features(FeaturesOptions),
    /// List the settings of the whole cluster, or change one
    Settings(SettingsOptions),
    /// List the nodes of the cluster, add one, promote or remove one
    #[command(subcommand)]
    Member(MemberCommand),
    /// Write a backup of the whole cluster
    Backup(BackupOptions),
    /// Make the first node of a new cluster from a backup; prints its config
    Restore(RestoreOptions),
    /// Measure this cluster
    Bench(BenchOptions),
    /// Check configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
    /// Print the versions of the program, the protocol and the formats
    Version,
    #[command(name = super::lock::SHIM_COMMAND, hide = true)]
    Child(ShimOptions),
    #[command(name = super::lock::GUARDIAN_COMMAND, hide = true)]
    Guardian(GuardianOptions),
}

#[derive(Debug, Args)]
pub(super) struct DevOptions {
    /// Number of nodes, 1 to 9
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9), value_name = "COUNT")]
    pub(super) nodes: u8,
    /// Directory in which the nodes keep their data
    #[arg(long, default_value = ".lockkeeper", value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Keep all data in memory, and lose it at the end
    #[arg(long, conflicts_with = "dir")]
    pub(super) ephemeral: bool,
    /// Timing of heartbeats and elections
    #[arg(long, default_value = "lan", value_enum)]
    pub(super) profile: DevProfile,
    /// Lowest port: node N listens on PORT+N for clients, PORT+10+N for the other nodes and PORT+20+N for HTTP
    #[arg(long, default_value_t = PORT_BASE, value_parser = port_base, value_name = "PORT")]
    pub(super) port_base: u16,
}

/// Timing profiles that make sense on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DevProfile {
    /// For machines of one site: elections begin after some hundred milliseconds.
    Lan,
    /// For loopback: elections begin as early as a busy machine allows.
    Fast,
}

impl From<DevProfile> for Profile {
    fn from(profile: DevProfile) -> Self {
        match profile {
            DevProfile::Lan => Profile::Lan,
            DevProfile::Fast => Profile::Fast,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ServeOptions {
    /// Configuration of the node
    #[arg(long, value_name = "FILE", env = "LOCKKEEPER_CONFIG")]
    pub(super) config: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct AcquireOptions {
    /// Name of the lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// Length of the lease, such as 30s; at most the cluster's setting ttl_max, which is 10m unless it was changed
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    pub(super) duration: Duration,
    /// Secret that refreshes and releases the lease; `-` reads it from standard input [default: random]
    #[arg(long, value_parser = handle, env = "LOCKKEEPER_HANDLE", hide_env_values = true, value_name = "HANDLE")]
    pub(super) handle: Option<Handle>,
    /// Do not wait
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    pub(super) try_once: bool,
    /// Longest wait, such as 30s; 0s does not wait [default: 7d]
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    pub(super) wait: Option<Duration>,
    /// Hold alone, or together with other shared holders
    #[arg(long, value_enum, default_value = "exclusive")]
    pub(super) mode: LeaseMode,
    /// Purpose, shown with the lock [default: none]
    #[arg(long, value_name = "TEXT")]
    pub(super) why: Option<String>,
}

/// How a lease may hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LeaseMode {
    /// Alone.
    Exclusive,
    /// With others.
    Shared,
}

#[derive(Debug, Args)]
pub(super) struct RefreshOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    #[command(flatten)]
    pub(super) handle: HandleOption,
    /// Length of the lease from now, such as 30s
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    pub(super) duration: Duration,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    #[command(flatten)]
    pub(super) handle: HandleOption,
}

#[derive(Debug, Args)]
pub(super) struct WaitOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// Wait at most this long, from the start; 0s looks once [default: without end]
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    pub(super) wait: Option<Duration>,
    #[command(flatten)]
    pub(super) retry: RetryOption,
}

#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// The fencing token
    #[arg(value_parser = token)]
    pub(super) token: FencingToken,
}

#[derive(Debug, Args)]
pub(super) struct NameOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
}

#[derive(Debug, Args)]
pub(super) struct ListOptions {
    /// Only names with this prefix
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Only locks that are held
    #[arg(long, conflicts_with = "waiting")]
    pub(super) held: bool,
    /// Only locks with waiters
    #[arg(long)]
    pub(super) waiting: bool,
    /// Only locks held for at least this long [default: 0s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) older_than: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct ShowOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// How to write it
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: ShowFormat,
}

#[derive(Debug, Args)]
pub(super) struct ExplainOptions {
    /// Which lock
    #[arg(value_parser = lock_name, required_unless_present = "session")]
    pub(super) name: Option<LockName>,
    /// Explain what this session waits for, instead of a lock [default: none]
    #[arg(long, value_parser = session, value_name = "ID", conflicts_with = "name")]
    pub(super) session: Option<SessionId>,
}

/// Ways to show a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ShowFormat {
    /// For people.
    Text,
    /// As with --json.
    Json,
    /// As a document of config.locks: one line of extended JSON, or null where there is none.
    Config,
}

#[derive(Debug, Args)]
pub(super) struct WatchOptions {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Go on after this position; with the first digits of a cluster_id, only in that cluster [default: from now on]
    #[arg(long, value_parser = position::from, value_name = "INDEX.N[@CLUSTER]")]
    pub(super) from: Option<position::After>,
    #[command(flatten)]
    pub(super) retry: RetryOption,
}

#[derive(Debug, Args)]
pub(super) struct TransferOptions {
    /// Id of the node that is to lead
    pub(super) node: u64,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check whether a file is a valid configuration, and say what is wrong with it
    Check(ConfigCheckOptions),
}

#[derive(Debug, Args)]
pub(super) struct ConfigCheckOptions {
    /// Which file
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CompletionsOptions {
    /// For which shell
    pub(super) shell: clap_complete::Shell,
}
