//! A run: clients and watchers work while nodes are struck, then everybody comes to an end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper::client::{Client, ClientError};
use lockkeeper::model::SessionId;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::ServiceError;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{contend, look, witness};
use crate::checker::{History, Rule, Telling, Violation, check};
use crate::cluster::{Cluster, PATIENCE};
use crate::random::Random;

const CLIENTS: usize = 8;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the tasks of one run share.
pub(super) struct Run {
    pub(super) started: Instant,
    history: Mutex<Arc<History>>,
    stopping: AtomicBool,
    /// The session whose end is the last event that matters.
    pub(super) marker: Mutex<Option<SessionId>>,
    /// Errors that no client should meet.
    pub(super) odd: Mutex<Vec<String>>,
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

    /// Outages and lost sessions are part of the game; refusals are not.
    pub(super) fn met(&self, doing: &str, error: &ClientError) {
        let expected = match error {
            ClientError::NotAcquired { .. } | ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } => true,
            ClientError::Service(error) => !matches!(error, ServiceError::Internal(_)),
            ClientError::Refused(_) | ClientError::Invalid(_) => false,
        };
        if !expected {
            lock(&self.odd).push(format!("{doing} at {:?}: {error:?}", self.now()));
        }
    }
}

/// Clients and watchers at work.
pub(super) struct Scene {
    pub(super) run: Arc<Run>,
    pub(super) seed: u64,
    pub(super) random: Random,
    clients: JoinSet<()>,
    witnesses: JoinSet<()>,
}

impl Scene {
    /// Watchers alone: who asks is the test's business.
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let seed = std::env::var("LOCKKEEPER_CRASH_SEED").ok().and_then(|text| text.parse().ok());
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let seed = seed.unwrap_or_else(clock);
        eprintln!("LOCKKEEPER_CRASH_SEED={seed}");
        let run = Arc::new(Run {
            started: Instant::now(),
            history: Mutex::new(Arc::new(History { tellings: vec![Telling::default(); 3], ..History::default() })),
            stopping: AtomicBool::new(false),
            marker: Mutex::default(),
            odd: Mutex::default(),
        });
        let mut scene =
            Self { run, seed, random: Random::new(seed), clients: JoinSet::new(), witnesses: JoinSet::new() };
        for (node, endpoint) in cluster.endpoints().into_iter().enumerate() {
            scene.witnesses.spawn(witness(scene.run.clone(), node, endpoint));
        }
        scene
    }

    /// Watchers, and clients who contend.
    pub(super) fn open(cluster: &Cluster) -> Self {
        let mut scene = Self::watch(cluster);
        for (node, endpoint) in cluster.endpoints().into_iter().enumerate() {
            let random = scene.random.fork();
            scene.clients.spawn(look(scene.run.clone(), CLIENTS + node, endpoint, random));
        }
        for client in 0..CLIENTS {
            let mut endpoints = cluster.endpoints();
            endpoints.rotate_left(client % 3);
            scene.clients.spawn(contend(scene.run.clone(), client, endpoints, scene.random.fork()));
        }
        scene
    }

    /// Waits until clients were granted so many locks in all.
    pub(super) async fn granted(&self, grants: usize) {
        let started = Instant::now();
        while self.run.history().beliefs.len() < grants {
            assert!(
                started.elapsed() < PATIENCE,
                "seed {}: only {} grants",
                self.seed,
                self.run.history().beliefs.len()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// How this rule was broken, as far as that can be seen yet.
    pub(super) fn sees_broken(&self, rule: Rule) -> Option<Violation> {
        check(&self.run.history(), false).into_iter().find(|violation| violation.rule == rule)
    }

    /// Waits until this rule is seen broken.
    pub(super) async fn broken(&self, rule: Rule) -> Violation {
        let started = Instant::now();
        loop {
            if let Some(found) = self.sees_broken(rule) {
                return found;
            }
            assert!(started.elapsed() < 2 * PATIENCE, "seed {}: {rule:?} was not seen broken", self.seed);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets everybody come to an end, and the watchers see all of it.
    pub(super) async fn settle(&mut self, cluster: &Cluster) {
        self.run.stopping.store(true, Ordering::Relaxed);
        cluster.await_leader().await;
        joined(&mut self.clients, "a client does not come to its end").await;
        let client = connect(cluster.endpoints());
        let started = Instant::now();
        loop {
            let totals = client.totals().await.expect("totals").value;
            if totals.holders == 0 && totals.waiters == 0 {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "something is left behind: {totals:?}");
            sleep(Duration::from_millis(20)).await;
        }
        let last = client.session().open().await.expect("a last session");
        *lock(&self.run.marker) = Some(last.id());
        last.close().await.expect("closed");
        joined(&mut self.witnesses, "a watcher does not see the end").await;
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
