//! The clients and watchers that work during a run, and how they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper::client::{Client, ClientError};
use lockkeeper::model::SessionId;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::ServiceError;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{contend, inspect_locks, watch_node};
use crate::checker::{EventLog, History, Rule, Violation, check};
use crate::cluster::{Cluster, PATIENCE};
use crate::random::Random;
use crate::recipes::drains;
use crate::wait::wait_for;

const CLIENTS: usize = 8;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that the tasks of one run share.
pub(super) struct Run {
    pub(super) started: Instant,
    history: Mutex<Arc<History>>,
    stopping: AtomicBool,
    /// The session whose end is the last event for which watchers wait.
    pub(super) marker: Mutex<Option<SessionId>>,
    /// Errors that no client should get.
    pub(super) unexpected: Mutex<Vec<String>>,
}

impl Run {
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn history(&self) -> Arc<History> {
        lock(&self.history).clone()
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut History)) {
        change(Arc::make_mut(&mut *lock(&self.history)));
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Records an unexpected error. Outages and lost sessions are expected; refusals are not.
    pub(super) fn note_error(&self, doing: &str, error: &ClientError) {
        let expected = match error {
            ClientError::NotAcquired { .. } | ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } => true,
            ClientError::Service(error) => !matches!(error, ServiceError::Internal(_)),
            ClientError::Refused(_) | ClientError::Invalid(_) => false,
        };
        if !expected {
            lock(&self.unexpected).push(format!("{doing} at {:?}: {error:?}", self.now()));
        }
    }
}

/// The running clients and watchers of a run.
pub(super) struct Workload {
    pub(super) run: Arc<Run>,
    pub(super) seed: u64,
    pub(super) random: Random,
    clients: JoinSet<()>,
    watchers: JoinSet<()>,
}

impl Workload {
    /// Starts the watchers alone; the test makes its own requests.
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let seed = std::env::var("LOCKKEEPER_CRASH_SEED").ok().and_then(|text| text.parse().ok());
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let seed = seed.unwrap_or_else(clock);
        eprintln!("LOCKKEEPER_CRASH_SEED={seed}");
        let run = Arc::new(Run {
            started: Instant::now(),
            history: Mutex::new(Arc::new(History { event_logs: vec![EventLog::default(); 3], ..History::default() })),
            stopping: AtomicBool::new(false),
            marker: Mutex::default(),
            unexpected: Mutex::default(),
        });
        let mut workload =
            Self { run, seed, random: Random::new(seed), clients: JoinSet::new(), watchers: JoinSet::new() };
        for (node, endpoint) in cluster.endpoints().into_iter().enumerate() {
            workload.watchers.spawn(watch_node(workload.run.clone(), node, endpoint));
        }
        workload
    }

    /// Starts the watchers and the clients.
    pub(super) fn open(cluster: &Cluster) -> Self {
        let mut workload = Self::watch(cluster);
        for (node, endpoint) in cluster.endpoints().into_iter().enumerate() {
            let random = workload.random.fork();
            workload.clients.spawn(inspect_locks(workload.run.clone(), CLIENTS + node, endpoint, random));
        }
        for client in 0..CLIENTS {
            let mut endpoints = cluster.endpoints();
            endpoints.rotate_left(client % 3);
            workload.clients.spawn(contend(workload.run.clone(), client, endpoints, workload.random.fork()));
        }
        workload
    }

    /// Waits until the clients have been granted this many locks in total.
    pub(super) async fn granted(&self, grants: usize) {
        wait_for(format_args!("{grants} grants with seed {}", self.seed), async || {
            let granted = self.run.history().beliefs.len();
            if grants <= granted { Ok(()) } else { Err(granted) }
        })
        .await;
    }

    /// Returns a violation of this rule in the history so far, if any.
    pub(super) fn violation_of(&self, rule: Rule) -> Option<Violation> {
        check(&self.run.history(), false).into_iter().find(|violation| violation.rule == rule)
    }

    /// Waits until this rule is broken. Returns the violation.
    pub(super) async fn await_violation(&self, rule: Rule) -> Violation {
        let started = Instant::now();
        loop {
            if let Some(found) = self.violation_of(rule) {
                return found;
            }
            assert!(started.elapsed() < 2 * PATIENCE, "seed {}: {rule:?} was not broken", self.seed);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Stops the clients, waits until they have ended, and waits until the watchers have received all events.
    pub(super) async fn settle(&mut self, cluster: &Cluster) {
        self.run.stopping.store(true, Ordering::Relaxed);
        cluster.await_leader().await;
        joined(&mut self.clients, "a client does not end").await;
        let client = connect(cluster.endpoints());
        drains(&client).await;
        let last = client.session().open().await.expect("a last session");
        *lock(&self.run.marker) = Some(last.id());
        last.close().await.expect("closed");
        joined(&mut self.watchers, "a watcher does not receive the last event").await;
    }
}

pub(super) fn connect(endpoints: Vec<String>) -> Client<RemoteService> {
    Client::new(RemoteService::new(RemoteSettings::new(endpoints)).expect("endpoints"))
}

async fn joined(tasks: &mut JoinSet<()>, what: &str) {
    while let Some(ended) = timeout(PATIENCE, tasks.join_next()).await.unwrap_or_else(|_| panic!("{what}")) {
        ended.expect("a task");
    }
}
