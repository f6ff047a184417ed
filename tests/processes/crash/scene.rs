//! A run: nodes are killed and restarted while clients and watchers work, then everybody comes to an end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper::client::{Client, ClientError};
use lockkeeper::model::SessionId;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::ServiceError;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{contend, witness};
use crate::checker::{History, Rule, Telling, Violation, check};
use crate::cluster::{Cluster, PATIENCE};

const CLIENTS: usize = 8;
/// A long run says so often how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SplitMix64: the run's choices follow from its seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }
}

/// What a run did.
#[derive(Debug, Default)]
pub(super) struct Kills {
    /// When the leader was killed, stopped or paused.
    pub(super) leaders: Vec<Duration>,
    followers: usize,
    two_at_once: usize,
    pub(super) all_at_once: usize,
    /// Rounds in which the victims were paused.
    pub(super) paused: usize,
    /// Rounds in which they were asked to stop.
    pub(super) stopped: usize,
}

/// What is done to the victims of a round. `LOCKKEEPER_CRASH_FAULTS` names some of them, with commas between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// kill -9, and a new start.
    Kill,
    /// SIGSTOP, for up to two and a half TTLs, and SIGCONT.
    Pause,
    /// SIGTERM, and a new start.
    Stop,
}

impl std::fmt::Display for Kills {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { leaders, followers, two_at_once, all_at_once, paused, stopped } = self;
        let leaders = leaders.len();
        write!(f, "struck: {leaders} leaders, {followers} followers, {two_at_once} times two nodes, ")?;
        write!(f, "{all_at_once} times all three; {paused} rounds by a pause, {stopped} by a planned stop")
    }
}

impl Blow {
    /// Most rounds kill.
    const USUAL: [Blow; 5] = [Blow::Kill, Blow::Kill, Blow::Kill, Blow::Pause, Blow::Stop];

    fn of(word: &str) -> Self {
        match word {
            "kill" => Blow::Kill,
            "pause" => Blow::Pause,
            "stop" => Blow::Stop,
            unknown => panic!("LOCKKEEPER_CRASH_FAULTS names {unknown:?}; there are kill, pause and stop"),
        }
    }

    /// Those that were asked for.
    pub(super) fn wanted() -> Vec<Self> {
        let words = std::env::var("LOCKKEEPER_CRASH_FAULTS").ok().filter(|words| !words.is_empty());
        words.map_or(Self::USUAL.to_vec(), |words| words.split(',').map(Self::of).collect())
    }
}

/// When the killing stops.
#[derive(Clone, Copy)]
pub(super) enum Until {
    TimeIsUp,
    Broken(&'static [Rule]),
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
    random: Random,
    clients: JoinSet<()>,
    witnesses: JoinSet<()>,
}

impl Scene {
    pub(super) fn open(cluster: &Cluster) -> Self {
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
        let mut scene = Self { run, seed, random: Random(seed), clients: JoinSet::new(), witnesses: JoinSet::new() };
        for (node, endpoint) in cluster.endpoints().into_iter().enumerate() {
            scene.witnesses.spawn(witness(scene.run.clone(), node, endpoint));
        }
        for client in 0..CLIENTS {
            let mut endpoints = cluster.endpoints();
            endpoints.rotate_left(client % 3);
            scene.clients.spawn(contend(scene.run.clone(), client, endpoints, Random(scene.random.next())));
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

    /// Waits until this rule is seen broken.
    pub(super) async fn broken(&self, rule: Rule) -> Violation {
        let started = Instant::now();
        loop {
            let violations = check(&self.run.history(), false);
            if let Some(found) = violations.into_iter().find(|violation| violation.rule == rule) {
                return found;
            }
            assert!(started.elapsed() < 2 * PATIENCE, "seed {}: {rule:?} was not seen broken", self.seed);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Strikes nodes and restarts them until it is enough.
    pub(super) async fn torment(
        &mut self,
        cluster: &mut Cluster,
        length: Duration,
        blows: &[Blow],
        until: Until,
    ) -> Kills {
        let mut kills = Kills::default();
        let mut told = self.run.now();
        while self.run.now() < length {
            sleep(self.random.ms(800, 1_600)).await;
            if let Until::Broken(rules) = until {
                let violations = check(&self.run.history(), false);
                if violations.iter().any(|violation| rules.contains(&violation.rule)) {
                    break;
                }
            }
            if told + TELL_EVERY < self.run.now() {
                told = self.run.now();
                let grants = self.run.history().beliefs.len();
                eprintln!("{} of {} s, {grants} grants, {kills}", told.as_secs(), length.as_secs());
            }
            let blow = blows[self.random.below(blows.len() as u64) as usize];
            // Each node's last checkpoint covers what it has applied, and its events with it: after a planned stop of all
            // three nobody tells what subscribers had not yet heard, and says so. The checker needs every event.
            let all = kills.all_at_once == 0 && self.run.now() > length / 3 && blow != Blow::Stop;
            let victims = self.victims(leader(cluster).await, all, &mut kills);
            for node in &victims {
                let ended = cluster.ended(*node);
                assert!(ended.is_none() || !matches!(until, Until::TimeIsUp), "node {node} ended by itself: {ended:?}");
            }
            self.strike(cluster, blow, &victims, &mut kills).await;
        }
        kills
    }

    async fn strike(&mut self, cluster: &mut Cluster, blow: Blow, victims: &[usize], kills: &mut Kills) {
        match blow {
            Blow::Kill => victims.iter().for_each(|node| cluster.kill(*node)),
            Blow::Pause => {
                kills.paused += 1;
                victims.iter().for_each(|node| cluster.signal(*node, Signal::STOP));
                sleep(self.random.ms(200, 2_500)).await;
                victims.iter().for_each(|node| cluster.signal(*node, Signal::CONT));
                return;
            }
            Blow::Stop => {
                kills.stopped += 1;
                for node in victims {
                    let code = tokio::task::block_in_place(|| cluster.stop(*node));
                    assert_eq!(code, Some(0), "node {node}: a planned stop");
                }
            }
        }
        sleep(self.random.ms(100, 700)).await;
        for node in victims {
            cluster.spawn(*node);
        }
    }

    fn victims(&mut self, leader: Option<usize>, all: bool, kills: &mut Kills) -> Vec<usize> {
        let leader = leader.unwrap_or_else(|| 1 + self.random.below(3) as usize);
        let follower = 1 + (leader + self.random.below(2) as usize) % 3;
        let dice = self.random.below(100);
        let victims = if all {
            kills.all_at_once += 1;
            vec![1, 2, 3]
        } else if dice < 15 {
            kills.two_at_once += 1;
            vec![leader, follower]
        } else if dice < 75 {
            vec![leader]
        } else {
            kills.followers += 1;
            vec![follower]
        };
        if victims.contains(&leader) {
            kills.leaders.push(self.run.now());
        }
        victims
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

/// The leader, as far as a node that runs knows one that runs. Nobody is waited for.
async fn leader(cluster: &Cluster) -> Option<usize> {
    let mut newest = None;
    for node in 1..=3 {
        if let Some(status) = cluster.status_of(node).await {
            let leads = status.leader.and_then(|leader| usize::try_from(leader).ok());
            newest = newest.max(leads.map(|leader| (status.term, leader)));
        }
    }
    newest.map(|(_, leader)| leader)
}
