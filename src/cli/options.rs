//! What may be written on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::acting::{AskOptions, BreakOptions, HandOverOptions, SemaphoreOptions};
use super::backup::{BackupOptions, RestoreOptions};
use super::bench::BenchOptions;
use super::history::{HistoryOptions, VerifyOptions};
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

/// Common to all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct Common {
    /// Nodes to ask, separated by commas
    #[arg(
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
    #[arg(long, global = true, env = "LOCKKEEPER_NAMESPACE", default_value = "default", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// Connecting plus one request; it never bounds a wait or a child
    #[arg(long, global = true, env = "LOCKKEEPER_TIMEOUT", default_value = "5s", value_parser = duration, value_name = "D")]
    pub(super) timeout: Duration,
    /// Answers, and errors, as JSON: one object a line
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Authority that signed the nodes' certificates (PEM)
    #[arg(long, global = true, env = "LOCKKEEPER_CA", value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Own certificate (PEM)
    #[arg(long, global = true, env = "LOCKKEEPER_CERT", value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Key of the own certificate (PEM)
    #[arg(long, global = true, env = "LOCKKEEPER_KEY", value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// File with the token that says who you are to the cluster; refused until this version can send one
    #[arg(long, global = true, env = "LOCKKEEPER_AUTH_TOKEN_FILE", value_name = "FILE")]
    pub(super) auth_token_file: Option<PathBuf>,
    /// Tell on standard error what happens; twice for more
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
    /// Return when a name is free
    Wait(NameOptions),
    /// List locks in use
    Ls(ListOptions),
    /// Show one lock: who holds it, who waits
    Show(ShowOptions),
    /// Say who waits for whom, why, and what would end it
    Explain(ExplainOptions),
    /// List sessions
    Sessions,
    /// Follow what happens to locks and sessions
    Watch(WatchOptions),
    /// Who held a lock, from the past to now
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
    /// The cluster's feature level: what its nodes support, and raising it
    Features(FeaturesOptions),
    /// Who belongs to the cluster
    #[command(subcommand)]
    Member(MemberCommand),
    /// Write a backup of the whole cluster
    Backup(BackupOptions),
    /// Make the first node of a new cluster from a backup; prints its config
    Restore(RestoreOptions),
    /// Measure this cluster
    Bench(BenchOptions),
    /// Look after configuration files
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
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(super) nodes: u8,
    /// Where to keep the data
    #[arg(long, default_value = ".lockkeeper", value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Keep nothing
    #[arg(long, conflicts_with = "dir")]
    pub(super) ephemeral: bool,
    /// Timing
    #[arg(long, default_value = "lan", value_enum)]
    pub(super) profile: DevProfile,
    /// Node N listens on P+N (clients), P+10+N (peers) and P+20+N (HTTP)
    #[arg(long, default_value_t = PORT_BASE, value_parser = port_base, value_name = "P")]
    pub(super) port_base: u16,
}

/// Timing profiles that make sense on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DevProfile {
    /// As between the machines of one site.
    Lan,
    /// As fast as loopback allows.
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
    /// The node's configuration
    #[arg(long, value_name = "FILE", env = "LOCKKEEPER_CONFIG")]
    pub(super) config: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct AcquireOptions {
    /// Name of the lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// Length of the lease, such as 30s; at most 10m, unless the cluster was set up for more
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    pub(super) duration: Duration,
    /// Secret that refreshes and releases the lease [default: random]
    #[arg(long, value_parser = handle, value_name = "HANDLE")]
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
    /// Purpose, shown with the lock
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
    /// The lease's secret
    #[arg(value_parser = handle)]
    pub(super) handle: Handle,
    /// For how long from now
    #[arg(long = "for", value_parser = duration, value_name = "D")]
    pub(super) duration: Duration,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseOptions {
    /// Which lock
    #[arg(value_parser = lock_name)]
    pub(super) name: LockName,
    /// The lease's secret
    #[arg(value_parser = handle)]
    pub(super) handle: Handle,
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
    /// Only names that begin so
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Only those that somebody holds
    #[arg(long, conflicts_with = "waiting")]
    pub(super) held: bool,
    /// Only those that somebody waits for
    #[arg(long)]
    pub(super) waiting: bool,
    /// Only those held for at least so long
    #[arg(long, value_parser = duration, value_name = "D")]
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
    /// What this session waits for, instead
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
    /// Only locks whose names begin so
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Go on after this position; with the first digits of a cluster_id, only in that cluster
    #[arg(long, value_parser = position::from, value_name = "INDEX.N[@CLUSTER]")]
    pub(super) from: Option<position::After>,
}

#[derive(Debug, Args)]
pub(super) struct TransferOptions {
    /// Id of the node that shall lead
    pub(super) node: u64,
}

#[derive(Debug, Args)]
pub(super) struct FeaturesOptions {
    /// Raise the level; it never falls again, and older builds can no longer join
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(super) raise_to: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Say whether a file is a good configuration, and what is wrong with it
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
