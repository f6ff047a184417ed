//! Clients contend for a few locks while nodes are killed with -9; a checker then judges what was seen. The same run
//! with planted bugs proves that the checker can see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper::client::{Client, ClientError, LockGuard, Session};
use lockkeeper::faults::Fault;
use lockkeeper::model::{EventKind, Mode, Position, SessionId};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::ServiceError;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::checker::{Belief, History, Rule, Telling, Violation, check};
use crate::cluster::{Cluster, PATIENCE};

const CLIENTS: usize = 8;
const LOCKS: [&str; 3] = ["red", "green", "blue"];
const TTL: Duration = Duration::from_millis(1_500);
/// The default run; `LOCKKEEPER_CRASH_SECS` sets another.
const RUN: Duration = Duration::from_secs(25);
/// A planted bug must be found within so long.
const FIND: Duration = Duration::from_secs(45);

/// The machine has few cores, and these runs want all of them: one at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Eight clients contend for three locks through gRPC while a random node, mostly the leader, sometimes two and once
/// all three are killed with -9 and restarted: every promise is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_held_twice_while_nodes_are_killed() {
    let _turn = TURN.lock().await;
    let length = std::env::var("LOCKKEEPER_CRASH_SECS").ok().and_then(|text| text.parse().ok());
    let length = length.map_or(RUN, Duration::from_secs);
    let mut cluster = Cluster::start_faulty(None).await;
    let mut scene = Scene::open(&cluster);
    let kills = scene.torment(&mut cluster, length, Until::TimeIsUp).await;
    scene.settle(&cluster).await;
    let history = scene.run.history().clone();
    let through = through_a_failover(&history, &kills);
    let granted = history.beliefs.len();
    eprintln!("{granted} grants, {through} through a failover; kills: {kills:?}");
    let violations = check(&history, true);
    assert!(violations.is_empty(), "seed {}:\n{}", scene.seed, listed(&violations));
    let odd = std::mem::take(&mut *lock(&scene.run.odd));
    assert!(odd.is_empty(), "seed {}: unexpected errors: {odd:#?}", scene.seed);
    assert!(kills.leaders.len() >= 2 && kills.all_at_once >= 1, "the run proves nothing: {kills:?}");
    assert!(through > 0 && granted > 100, "the run proves nothing: {granted} grants, {through} through a failover");
}

/// A queue that serves the last first is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_a_queue_that_serves_the_last_first() {
    catches(Fault::LifoQueue, &[Rule::FirstComeFirstServed]).await;
}

/// Nodes that come back without the holders of their checkpoint are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_forgotten_holders() {
    catches(Fault::ForgottenHolders, &[Rule::OneHolder, Rule::EndsWhatWas]).await;
}

/// Tokens that begin again with the process are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_tokens_of_a_process() {
    catches(Fault::TokensOfThisProcess, &[Rule::TokensGrow]).await;
}

/// A request that is executed again when it is repeated is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_retries_that_run_again() {
    catches(Fault::RetriesRunAgain, &[Rule::OnceARequest]).await;
}

/// Sessions that end before what their clients were told are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_sessions_that_end_early() {
    catches(Fault::EarlyExpiry, &[Rule::BeliefsDisjoint]).await;
}

/// Runs with the planted bug until one of the rules is seen broken.
async fn catches(fault: Fault, rules: &'static [Rule]) {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(fault)).await;
    let mut scene = Scene::open(&cluster);
    let kills = scene.torment(&mut cluster, FIND, Until::Broken(rules)).await;
    let violations = check(&scene.run.history(), false);
    let found = violations.iter().find(|violation| rules.contains(&violation.rule));
    eprintln!("{fault:?} after {:?} and {kills:?}: {found:?}", scene.run.now());
    assert!(found.is_some(), "seed {}: {fault:?} was not seen:\n{}", scene.seed, listed(&violations));
}

fn listed(violations: &[Violation]) -> String {
    let lines = violations.iter().take(20).map(|violation| format!("  {:?}: {}", violation.rule, violation.what));
    let all = format!("{} broken promises\n", violations.len());
    all + &lines.collect::<Vec<_>>().join("\n")
}

/// Grants that were asked for before a leader was killed and given after.
fn through_a_failover(history: &History, kills: &Kills) -> usize {
    let through = |belief: &&Belief| kills.leaders.iter().any(|kill| belief.asked < *kill && *kill < belief.begin);
    history.beliefs.iter().filter(through).count()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SplitMix64: the run's choices follow from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }
}

/// What a run did.
#[derive(Debug, Default)]
struct Kills {
    /// When the leader was killed.
    leaders: Vec<Duration>,
    followers: usize,
    two_at_once: usize,
    all_at_once: usize,
}

/// When the killing stops.
#[derive(Clone, Copy)]
enum Until {
    TimeIsUp,
    Broken(&'static [Rule]),
}

/// What the tasks of one run share.
struct Run {
    started: Instant,
    history: Mutex<Arc<History>>,
    stopping: AtomicBool,
    /// The session whose end is the last event that matters.
    marker: Mutex<Option<SessionId>>,
    /// Errors that no client should meet.
    odd: Mutex<Vec<String>>,
}

impl Run {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn history(&self) -> Arc<History> {
        lock(&self.history).clone()
    }

    fn note(&self, change: impl FnOnce(&mut History)) {
        change(Arc::make_mut(&mut *lock(&self.history)));
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Outages and lost sessions are part of the game; refusals are not.
    fn met(&self, doing: &str, error: &ClientError) {
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
struct Scene {
    run: Arc<Run>,
    seed: u64,
    random: Random,
    clients: JoinSet<()>,
    witnesses: JoinSet<()>,
}

impl Scene {
    fn open(cluster: &Cluster) -> Self {
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

    /// Kills and restarts nodes until it is enough.
    async fn torment(&mut self, cluster: &mut Cluster, length: Duration, until: Until) -> Kills {
        let mut kills = Kills::default();
        while self.run.now() < length {
            sleep(self.random.ms(800, 1_600)).await;
            if let Until::Broken(rules) = until {
                let violations = check(&self.run.history(), false);
                if violations.iter().any(|violation| rules.contains(&violation.rule)) {
                    break;
                }
            }
            let all = kills.all_at_once == 0 && self.run.now() > length / 3;
            let victims = self.victims(leader(cluster).await, all, &mut kills);
            for node in &victims {
                let ended = cluster.ended(*node);
                assert!(ended.is_none() || !matches!(until, Until::TimeIsUp), "node {node} ended by itself: {ended:?}");
                cluster.kill(*node);
            }
            sleep(self.random.ms(100, 700)).await;
            for node in victims {
                cluster.spawn(node);
            }
        }
        kills
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
    async fn settle(&mut self, cluster: &Cluster) {
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

fn connect(endpoints: Vec<String>) -> Client<RemoteService> {
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

/// Writes down what one node tells, through its restarts.
async fn witness(run: Arc<Run>, node: usize, endpoint: String) {
    let client = connect(vec![endpoint]).request_wait(Duration::from_millis(300));
    let start = Position::default();
    let mut watch = client.watch("", Some(start)).await.expect("a watch");
    run.note(|history| history.tellings[node].stretches.push((start, start)));
    loop {
        match watch.next().await {
            Ok(event) => {
                let ends = matches!(event.kind, EventKind::SessionEnded { .. });
                let ended = event.kind.session().filter(|_| ends);
                run.note(|history| {
                    let telling = &mut history.tellings[node];
                    if let Some((_, to)) = telling.stretches.last_mut() {
                        *to = event.position;
                    }
                    telling.events.push(event);
                });
                if ended.is_some() && ended == *lock(&run.marker) {
                    return;
                }
            }
            Err(ClientError::Service(ServiceError::EventsMissed { .. })) => {
                let from = watch.position();
                run.note(|history| history.tellings[node].stretches.push((from, from)));
            }
            Err(error) => run.met("watch", &error),
        }
    }
}

/// One client: opens sessions, asks, holds and gives back until the run stops.
async fn contend(run: Arc<Run>, client: usize, endpoints: Vec<String>, mut random: Random) {
    let connection = connect(endpoints);
    let mut present: Option<Session<RemoteService>> = None;
    while !run.stopping() {
        let alive = present.take().filter(|session| !session.valid_for().is_zero());
        let session = match alive {
            Some(session) => session,
            None => match connection.session().ttl(TTL).open().await {
                Ok(session) => session,
                Err(error) => {
                    run.met("open", &error);
                    continue;
                }
            },
        };
        one_round(&run, client, &session, &mut random).await;
        present = Some(session);
    }
    if let Some(session) = present
        && let Err(error) = session.close().await
    {
        run.met("close", &error);
    }
}

async fn one_round(run: &Run, client: usize, session: &Session<RemoteService>, random: &mut Random) {
    let name = LOCKS[random.below(LOCKS.len() as u64) as usize];
    let (dice, patience) = (random.below(100), random.ms(5, 300));
    let request = session.lock(name);
    let (request, mode) = match dice {
        0..60 => (request, Mode::Exclusive),
        60..75 => (request.shared(), Mode::Shared),
        75..85 => (request.wait(patience), Mode::Exclusive),
        85..92 => (request.try_once(), Mode::Exclusive),
        _ => (request.shared().wait(patience), Mode::Shared),
    };
    let asked = run.now();
    let acquired = if random.below(100) < 5 {
        // The caller goes away halfway: nothing of it may be left.
        let Ok(acquired) = timeout(patience, request.acquire()).await else { return };
        acquired
    } else {
        request.acquire().await
    };
    match acquired {
        Ok(guard) => hold(run, (client, asked, mode), guard, random).await,
        Err(error) => run.met("acquire", &error),
    }
}

async fn hold(run: &Run, (client, asked, mode): (usize, Duration, Mode), guard: LockGuard, random: &mut Random) {
    let begin = run.now();
    let length = if random.below(100) < 5 { random.ms(300, 900) } else { random.ms(1, 25) };
    let mut valid;
    loop {
        let now = run.now();
        valid = now + guard.valid_for();
        let left = (begin + length).saturating_sub(now);
        if left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(left.min(Duration::from_millis(10))) => (),
        }
    }
    let (lock, token, session) = (guard.name().clone(), guard.token(), guard.session());
    let end = run.now().min(valid);
    run.note(|history| {
        history.beliefs.push(Belief { client, lock: lock.clone(), token, session, mode, asked, begin, end });
    });
    if random.below(100) < 10 {
        drop(guard);
        return;
    }
    match guard.release().await {
        Ok(_) => run.note(|history| history.releases.push((lock, token))),
        Err(error) => run.met("release", &error),
    }
}
