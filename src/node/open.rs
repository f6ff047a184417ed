//! Opens a node: its directory, log and state, then consensus, the proposer and the background tasks.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::admission::Watchers;
use super::audited;
use super::auth::{Auth, Caller};
use super::cluster::{announcements, consistency};
use super::core::{Core, Shared};
use super::metrics::sampler;
use super::options::{NodeOptions, PeerNetwork, Tuning};
use super::raft_callbacks::RaftCallbacks;
use super::rate_limit::RateLimits;
use super::source_rate::SourceRate;
use super::{Node, Tasks, forward, leadership, proposer, watchdog};
use crate::audit::AuditLog;
use crate::auth::{AuthError, Who};
use crate::clock::Clock;
use crate::config::{Config, ConfigError, Protection, TlsMode};
use crate::limits;
use crate::model::ClusterSettings;
use crate::mutex::Mutex;
use crate::net::{Connector, Incoming, PortTls, TlsError, accepted, closed_first};
use crate::raft::{Consensus, RaftSettings, StartError, Timing};
use crate::service::{Places, Source};
use crate::storage::{self, MemoryDisk, OpenError, Owner, StateStore, SyncObserver, Wal};

/// Why a node did not open. All that was started has stopped.
#[derive(Debug, thiserror::Error)]
pub enum OpenNodeError {
    /// The data directory cannot be used; the text names the file, the record and the fix.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The node cannot listen on an address.
    #[error("cannot listen on {address} for the other nodes: {error}")]
    Listen {
        /// Address that could not be bound, as `HOST:PORT`.
        address: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The port for the other nodes can be reached by other machines, and nothing protects it.
    #[error(transparent)]
    Exposed(#[from] ConfigError),
    /// The certificates for the other nodes cannot be used; the text names the file and the fix.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file of rules cannot be used; the text names the file, the line and the fix.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The audit log cannot be opened.
    #[error("the audit log {} cannot be opened: {error}; check the path and its owner", path.display())]
    Audit {
        /// Path of the log.
        path: PathBuf,
        /// Why it cannot be opened.
        error: io::Error,
    },
    /// The threads of the node's own runtime cannot be started.
    #[error("the node's threads cannot be started: {0}; check the limit of processes (ulimit -u)")]
    Threads(io::Error),
    /// The runtime ended while the node opened.
    #[error("the runtime ended while the node opened; open the node on a runtime that outlives it")]
    Interrupted,
    /// Consensus cannot start.
    #[error(transparent)]
    Consensus(#[from] StartError),
    /// The cluster cannot be founded.
    #[error("the cluster cannot be founded: {0}")]
    Found(String),
    /// The timing differs from the cluster's, or the build is older than the cluster's feature level.
    #[error("{0}")]
    Unfit(String),
}

impl Node {
    /// Opens a node with its config. The first start of all founding members forms the cluster.
    ///
    /// A directory is refused if it belongs to another node, is in use, is damaged, or was written by a newer build.
    /// The error names the file, the record and the fix.
    ///
    /// A node whose future is dropped before it has opened closes in the background, and then releases its directory.
    pub async fn open(config: Config) -> Result<Self, OpenNodeError> {
        Self::open_with(config, NodeOptions::default()).await
    }

    /// Opens a node with the given clock, storage, network and runtime.
    pub async fn open_with(config: Config, mut options: NodeOptions) -> Result<Self, OpenNodeError> {
        let network = match options.peer_network.take() {
            Some(network) => Bound::Given(network),
            None => Bound::Tcp(listen(&config, options.peer_listener.take())?),
        };
        let auth = config.auth.clone().map(Auth::open).transpose()?;
        let audit = config.audit.as_deref().map(|path| open_audit(path, config.node, &options.clock)).transpose()?;
        let tasks = Arc::new(Tasks::start(options.own_runtime, config.node).map_err(OpenNodeError::Threads)?);
        let fresh = options.ephemeral.then(|| MemoryDisk::new(options.clock.random_u128()));
        options.memory = options.memory.or(fresh);
        // A node that does not open drops its runtime here, not on a thread of that runtime.
        let opening = tasks.handle.spawn(open_here(config, options, auth, audit, network, Arc::clone(&tasks)));
        Ok(result_of(opening).await??.receive())
    }
}

/// The network between nodes before the node's runtime uses it.
enum Bound {
    Tcp(std::net::TcpListener),
    Given(PeerNetwork),
}

impl Bound {
    /// Creates the network; must be called on the node's runtime.
    fn network(self, config: &Config) -> Result<(PeerNetwork, Option<PortTls>), OpenNodeError> {
        let listener = match self {
            Bound::Tcp(listener) => TcpListener::from_std(listener).map_err(|error| not_listening(config, error))?,
            Bound::Given(network) => return Ok((network, None)),
        };
        let Protection::Tls { mode, files, .. } = &config.tls.peer else {
            return Ok((PeerNetwork { connector: Connector::tcp(), incoming: accepted(listener, None) }, None));
        };
        let tls = PortTls::for_nodes(files, &config.cluster, config.node, mode.accepts_plain())?;
        let connector = match mode {
            TlsMode::Allow => Connector::tcp(),
            TlsMode::Prefer | TlsMode::Require => tls.connector(),
        };
        Ok((PeerNetwork { connector, incoming: accepted(listener, Some(tls.clone())) }, Some(tls)))
    }
}

/// Returns the listener for the other nodes: the given one, or one at the address of the config. Refuses it if other
/// machines can reach it and nothing protects it.
fn listen(config: &Config, given: Option<std::net::TcpListener>) -> Result<std::net::TcpListener, OpenNodeError> {
    let bound = || std::net::TcpListener::bind(config.listen.peer);
    let listening = given.map_or_else(bound, Ok).map(closed_first).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    });
    let (address, listener) = listening.map_err(|error| not_listening(config, error))?;
    config.tls.peer.check("peer", address, &format!("node {}", config.node))?;
    Ok(listener)
}

fn not_listening(config: &Config, error: io::Error) -> OpenNodeError {
    OpenNodeError::Listen { address: config.listen.peer.to_string(), error }
}

/// Returns the result of a task, or continues its panic in this one.
async fn result_of<T>(task: JoinHandle<T>) -> Result<T, OpenNodeError> {
    task.await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => OpenNodeError::Interrupted,
    })
}

/// An open node on its way to the caller that opened it. If that caller has gone, the node closes.
struct Opened {
    node: Node,
    received: bool,
}

impl Opened {
    fn receive(mut self) -> Node {
        self.received = true;
        self.node.clone()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.received {
            let node = self.node.clone();
            self.node.tasks.handle.spawn(async move { node.close().await });
        }
    }
}

impl Tasks {
    fn start(own_runtime: bool, node: u64) -> io::Result<Self> {
        let mut runtime = None;
        let handle = if own_runtime {
            let built = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(limits::RAFT_THREADS)
                .thread_name(format!("lockkeeper-n{node}"))
                .enable_all()
                .build()?;
            runtime.insert(built).handle().clone()
        } else {
            tokio::runtime::Handle::current()
        };
        let callers = tokio::runtime::Handle::current();
        Ok(Self { running: Mutex::default(), runtime: Mutex::new(runtime), handle, callers })
    }
}

fn open_audit(path: &Path, node: u64, clock: &Arc<dyn Clock>) -> Result<AuditLog, OpenNodeError> {
    AuditLog::open(path, node, Arc::clone(clock)).map_err(|error| OpenNodeError::Audit { path: path.to_owned(), error })
}

/// Opens a node on its runtime.
async fn open_here(
    config: Config,
    options: NodeOptions,
    auth: Option<Auth>,
    audit: Option<AuditLog>,
    network: Bound,
    tasks: Arc<Tasks>,
) -> Result<Opened, OpenNodeError> {
    let NodeOptions { clock, memory, tuning, .. } = options;
    let mut settings = raft_settings(&config, tuning, clock.random_u128());
    let founds = config.peers_id.is_none();
    let (PeerNetwork { connector, incoming }, certificates) = network.network(&config)?;
    let shared = Arc::new(Shared::new(&config, Arc::clone(&clock), certificates));
    let (wal, state, recovered): (Arc<dyn Wal>, Arc<dyn StateStore>, _) = if let Some(disk) = memory {
        let recovered = disk.recover().map_err(|error| StartError::Stored(error.to_string()))?;
        settings.disk = disk.id;
        (Arc::new(disk.wal), Arc::new(disk.state), recovered)
    } else {
        let opened = open_directory(config.data.clone(), &settings, clock.random_u128()).await?;
        if let Some(warning) = &opened.exposure {
            tracing::warn!(node = config.node, "{warning}");
        }
        if let Some(note) = &opened.recovered.note {
            tracing::warn!(node = config.node, note, "recovered");
        }
        opened.wal.on_sync(Arc::clone(&shared) as Arc<dyn SyncObserver>);
        // A node opens one directory, so the slot is empty.
        shared.lock.set(opened.lock).ok();
        settings.disk = opened.identity.disk;
        (Arc::new(opened.wal), Arc::new(opened.state), opened.recovered)
    };
    let hooks = Arc::new(RaftCallbacks { shared: Arc::clone(&shared), tasks: Arc::downgrade(&tasks) });
    let consensus = Consensus::start(settings.clone(), wal, state, &recovered, hooks, connector).await?;
    let node = assemble(config, auth, audit, settings, shared, consensus, tasks);
    node.core.queue.set_renewals_an_entry_max(tuning.renewals_an_entry_max);
    node.spawn(serve_peers(node.clone(), incoming));
    let founded = match watchdog::unfit(&node) {
        Some(why) => Err(OpenNodeError::Unfit(why)),
        // Does nothing unless this is the first start.
        None if founds => node.core.consensus.initialize().await.map_err(OpenNodeError::Found),
        None => Ok(()),
    };
    if let Err(error) = founded {
        node.close().await;
        return Err(error);
    }
    Ok(Opened { node, received: false })
}

/// Serves the other nodes until this node closes. The listener closes last: a port that refuses connections says that
/// the process is gone.
async fn serve_peers(node: Node, incoming: Incoming) {
    let mut ended = node.core.raft_ended.subscribe();
    let stopped = async move { ended.wait_for(|ended| *ended).await.map_or((), |_| ()) };
    if let Err(error) = node.core.consensus.serve(incoming, stopped).await {
        node.core.shared.fatal.send_replace(Some(format!("the port for the other nodes failed: {error}")));
    }
}

/// Opens the node's directory. A new directory gets the random disk id `disk`.
async fn open_directory(dir: PathBuf, settings: &RaftSettings, disk: u128) -> Result<storage::Opened, OpenNodeError> {
    let owner = Owner { cluster: settings.cluster.clone(), peers_id: settings.peers_id, node: settings.node };
    let opening = move || storage::open(&dir, owner, disk);
    Ok(result_of(tokio::task::spawn_blocking(opening)).await??)
}

fn assemble(
    config: Config,
    auth: Option<Auth>,
    audit: Option<AuditLog>,
    settings: RaftSettings,
    shared: Arc<Shared>,
    consensus: Consensus,
    tasks: Arc<Tasks>,
) -> Node {
    let core = Arc::new(Core {
        id: config.node,
        announcement: announcements::own(&config, settings.disk),
        cluster: config.cluster,
        peers_id: settings.peers_id,
        initial_members: settings.members,
        settings: ClusterSettings {
            timing_ms: [settings.timing.heartbeat_ms, settings.timing.election_min_ms, settings.timing.election_max_ms],
            ttl_ms_min: config.timing.ttl_ms_min,
            ttl_ms_max: limits::TTL_MS_MAX_DEFAULT,
        },
        election_max: Duration::from_millis(settings.timing.election_max_ms),
        clock: Arc::clone(&shared.clock),
        consensus,
        replies: tasks.of_replies(),
        shared: Arc::clone(&shared),
        queue: Arc::default(),
        agreed: Mutex::default(),
        split: Default::default(),
        transfer: Default::default(),
        changing_members: Default::default(),
        data: shared.lock.get().map(|_| config.data),
        rate_limits: RateLimits::new(config.rates),
        wrong_handles: SourceRate::of_wrong_handles(),
        backups: Arc::default(),
        acts: SourceRate::of_acts(),
        asks: SourceRate::of_asks(),
        watchers: Watchers::new(config.limits.watchers_a_principal),
        forwarded_waits: Places::new(limits::FORWARDED_WAITS_MAX),
        connections: config.limits.connections,
        leads_since: Mutex::default(),
        warnings: Mutex::default(),
        port_certificate_end: Mutex::default(),
        certificate_ends: Mutex::default(),
        auth,
        seen_tokens: Mutex::default(),
        audit: audit.map(Arc::new),
        leader: watch::Sender::new(None),
        endpoints: watch::Sender::new(Vec::new()),
        stop: watch::Sender::new(false),
        raft_ended: watch::Sender::new(false),
    });
    // A node is assembled once, so the slot is empty.
    shared.core.set(Arc::downgrade(&core)).ok();
    let caller = Caller { source: Source::InProcess, who: Who::Local, from: None };
    let node = Node { core: Arc::clone(&core), tasks, caller };
    node.spawn(proposer::run(Arc::clone(&core)));
    node.spawn(leadership::publish(node.clone()));
    node.spawn(forward::forward_unsent(node.clone()));
    node.spawn(watchdog::run(node.clone()));
    node.spawn(sampler::run(node.clone()));
    node.spawn(announcements::keep(node.clone()));
    node.spawn(consistency::compare(node.clone()));
    node.spawn(audited::keep(node.clone()));
    node
}

/// Returns the id by which nodes recognize each other: a hash of the cluster's name and initial members, so that these
/// agree on it before their first contact. A node that joins later has it in its config.
fn peers_id(config: &Config) -> u128 {
    config.peers_id.unwrap_or_else(|| {
        let mut hashed = config.cluster.clone();
        config.members.iter().for_each(|(id, member)| hashed.push_str(&format!("\n{id} {}", member.peer)));
        xxhash_rust::xxh3::xxh3_128(hashed.as_bytes())
    })
}

/// Reads what the directory of a node is, and changes nothing.
///
/// # Errors
/// It cannot be read, its identity is damaged, or it belongs to another node.
#[cfg(feature = "cli")]
pub(crate) fn examine(config: &Config) -> Result<storage::Examined, OpenError> {
    let owner = Owner { cluster: config.cluster.clone(), peers_id: peers_id(config), node: config.node };
    storage::examine(&config.data, &owner)
}

/// Returns the settings of consensus. The caller sets the id of the disk after it has opened the disk.
fn raft_settings(config: &Config, tuning: Tuning, process: u128) -> RaftSettings {
    RaftSettings {
        node: config.node,
        disk: 0,
        process,
        cluster: config.cluster.clone(),
        peers_id: peers_id(config),
        members: config.members.clone(),
        timing: Timing {
            heartbeat_ms: config.timing.heartbeat_ms,
            election_min_ms: config.timing.election_ms_min,
            election_max_ms: config.timing.election_ms_max,
        },
        checkpoint_ms: tuning.checkpoint_ms,
        snapshot_log_bytes_min: tuning.snapshot_log_bytes_min,
        purge_margin_entries: tuning.purge_margin_entries,
        replication_lag_entries_max: limits::REPLICATION_LAG_ENTRIES_MAX,
    }
}
