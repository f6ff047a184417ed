//! Figures of many clients, printed and not judged, as in `figures`. `LOCKKEEPER_FIGURES=5000 cargo test --test processes
//! figures_of_sessions -- --nocapture`; so with `figures_of_connections` (cycles) and `figures_of_transfers`.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use lockkeeper::client::Client;
use lockkeeper::limits::TOMBSTONE_MS;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::LockService;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::cluster::{Cluster, PATIENCE, TURN};
use crate::figures::wanted;
use crate::http::get;

const TTL: Duration = Duration::from_secs(10);
const SESSIONS_A_CLIENT: usize = 500;
const OPENED_AT_ONCE: usize = 64;
const SURVIVORS: usize = 8;
const DYING_AT_ONCE: usize = 8;
const TURNS: usize = 6;
/// The bounds of what a node keeps are full after the first.
const ROUNDS: usize = 4;
/// Some times what was seen; what a connection takes while it lives is many times as much.
const KIB_A_CLIENT_MAX: f64 = 16.0;
const SHORT_TTL: Duration = Duration::from_secs(3);

fn client_of(endpoints: &[String]) -> Client<RemoteService> {
    Client::new(RemoteService::new(RemoteSettings::new(endpoints.to_vec())).expect("endpoints"))
}

/// What clients met while something happened to others.
#[derive(Default)]
struct Met {
    over: AtomicBool,
    calls: AtomicUsize,
    failures: Mutex<Vec<String>>,
    longest: Mutex<Duration>,
}

impl Met {
    fn note<T, E: std::fmt::Debug>(&self, what: &str, began: Instant, answer: Result<T, E>) -> Option<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = began.elapsed().max(*longest);
        let refused =
            |error| self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what}: {error:?}"));
        answer.map_err(refused).ok()
    }

    fn told(&self) -> String {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = *self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let first: Vec<_> = failures.iter().take(5).collect();
        format!(
            "{} calls, {} failed {first:?}, the longest {longest:?}",
            self.calls.load(Ordering::Relaxed),
            failures.len()
        )
    }
}

/// Takes a lock of its own and gives it back, again and again, in one session.
async fn works(endpoints: Vec<String>, number: usize, met: Arc<Met>) {
    let session = client_of(&endpoints).session().ttl(TTL).open().await.expect("a session");
    while !met.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        if let Some(guard) = met.note("acquire", began, session.lock(&format!("alive-{number}")).acquire().await) {
            let began = Instant::now();
            met.note("release", began, guard.release().await);
        }
        sleep(Duration::from_millis(20)).await;
    }
    met.note("close", Instant::now(), session.close().await);
}

/// Opens sessions, each with a lock; nothing of them is dropped, as nothing is when a process is killed.
async fn open_many(endpoints: Vec<String>, count: usize) {
    let clients: Vec<_> = (0..count.div_ceil(SESSIONS_A_CLIENT)).map(|_| client_of(&endpoints)).collect();
    let opened = stream::iter(0..count).map(|number| {
        let client = clients[number / SESSIONS_A_CLIENT].clone();
        async move {
            let session = client.session().ttl(TTL).open().await.expect("a session");
            let guard = session.lock(&format!("doomed-{number}")).acquire().await.expect("free");
            std::mem::forget((session, guard));
        }
    });
    opened.buffer_unordered(OPENED_AT_ONCE).collect::<Vec<()>>().await;
}

/// Many sessions lose their process at one moment: how long they are still there, and what others notice of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_sessions_that_die_at_once() {
    let Some(count) = wanted() else { return };
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_with("lan").await;
    let (met, mut alive) = (Arc::new(Met::default()), JoinSet::new());
    (0..SURVIVORS).for_each(|number| drop(alive.spawn(works(cluster.endpoints(), number, Arc::clone(&met)))));
    let doomed = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let opening = Instant::now();
    doomed.spawn(open_many(cluster.endpoints(), count)).await.expect("opened");
    let (client, opened) = (cluster.client(), opening.elapsed());
    let there = client.totals().await.expect("totals").value.sessions;
    assert_eq!(there, (count + SURVIVORS) as u64, "all live");
    doomed.shutdown_background();
    let died = Instant::now();
    let mut first = None;
    loop {
        let there = client.totals().await.expect("totals").value.sessions;
        if there < (count + SURVIVORS) as u64 {
            first.get_or_insert(died.elapsed());
        }
        if there == SURVIVORS as u64 {
            break;
        }
        assert!(died.elapsed() < TTL + PATIENCE, "{there} sessions are left");
        sleep(Duration::from_millis(20)).await;
    }
    let last = died.elapsed();
    met.over.store(true, Ordering::Relaxed);
    while alive.join_next().await.is_some() {}
    eprintln!(
        "{count} sessions, opened in {opened:?}, died at once: the first was gone after {first:?}, the last after {last:?} (TTL {TTL:?}); others: {}",
        met.told()
    );
}

/// What a node takes of its machine.
#[derive(Debug, Clone, Copy)]
struct Taken {
    memory_kib: u64,
    descriptors: usize,
    threads: usize,
    tasks: usize,
}

impl Taken {
    fn by(cluster: &Cluster, node: usize) -> Self {
        let process = cluster.process(node);
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let memory =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        let entries = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, Iterator::count);
        let metrics = get(&cluster.http(node), "/metrics");
        let tasks =
            metrics.lines().find_map(|line| line.strip_prefix("lockkeeper_tasks{")?.split_once("} ")?.1.parse().ok());
        Self {
            memory_kib: memory.expect("a size"),
            descriptors: entries("fd"),
            threads: entries("task"),
            tasks: tasks.expect("a count"),
        }
    }

    fn of(cluster: &Cluster) -> Vec<Self> {
        (1..=3).map(|node| Self::by(cluster, node)).collect()
    }
}

/// Whether nothing is left of what the nodes took since, memory aside. However many clients there were, another node may lead,
/// nodes may have made connections to each other that were not needed before, and logs may have some more files.
fn are_back(after: &[Taken], before: &[Taken]) -> bool {
    let sum = |all: &[Taken], of: fn(&Taken) -> usize| all.iter().map(of).sum::<usize>();
    let within = |of: fn(&Taken) -> usize, more: usize| sum(after, of) <= sum(before, of) + more;
    within(|taken| taken.descriptors, 32) && within(|taken| taken.threads, 6) && within(|taken| taken.tasks, 64)
}

/// Connects, opens a session, takes a lock, and is gone without a word.
fn connect_and_die(endpoints: &[String], number: usize) {
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let held = runtime.block_on(async {
        let session = client_of(endpoints).session().ttl(SHORT_TTL).open().await.expect("a session");
        let guard = session.lock(&format!("cycle-{number}")).acquire().await.expect("free");
        (session, guard)
    });
    // Without their runtime they have no way to say that they end.
    drop(runtime);
    drop(held);
}

/// One turn of clients that connect and die, until the cluster has noticed; how much the nodes take then, and no more.
async fn turn(
    cluster: &Cluster,
    client: &Client<RemoteService>,
    before: &[Taken],
    first: usize,
    count: usize,
) -> Vec<Taken> {
    let cycles = stream::iter(first..first + count).map(|number| {
        let endpoints = cluster.endpoints();
        tokio::task::spawn_blocking(move || connect_and_die(&endpoints, number))
    });
    cycles.buffer_unordered(DYING_AT_ONCE).for_each(|ended| async { ended.expect("a cycle") }).await;
    let ended = Instant::now();
    while client.totals().await.expect("totals").value.sessions != 0 {
        assert!(ended.elapsed() < SHORT_TTL + PATIENCE, "sessions are left");
        sleep(Duration::from_millis(50)).await;
    }
    loop {
        let after = Taken::of(cluster);
        if are_back(&after, before) {
            return after;
        }
        assert!(ended.elapsed() < SHORT_TTL + PATIENCE, "something is left: {after:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Clients that connect and die, turn after turn: descriptors, threads and tasks of the nodes come back to what they were. Memory
/// is printed: in a first round, and in later ones, each when what is remembered of the sessions of the one before is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_connections_that_die() {
    let Some(count) = wanted() else { return };
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_with("lan").await;
    let client = cluster.client();
    client.totals().await.expect("totals");
    // A node counts its tasks once a second.
    sleep(Duration::from_secs(2)).await;
    let before = Taken::of(&cluster);
    eprintln!("each node before: {before:?}");
    let mut most = [0; ROUNDS];
    for (round, most) in most.iter_mut().enumerate() {
        if round != 0 {
            sleep(Duration::from_millis(TOMBSTONE_MS)).await;
            eprintln!("after {TOMBSTONE_MS} ms: {:?}", Taken::of(&cluster));
        }
        let mut last = if round == 0 { before.clone() } else { Taken::of(&cluster) };
        for number in TURNS * round..TURNS * (round + 1) {
            let after = turn(&cluster, &client, &before, number * count, count).await;
            let grown =
                |(after, last): (&Taken, &Taken)| (after.memory_kib as f64 - last.memory_kib as f64) / count as f64;
            let kib_a_client: Vec<f64> = after.iter().zip(&last).map(grown).collect();
            eprintln!("after {} cycles: {kib_a_client:.1?} KiB a client, {after:?}", (number + 1) * count);
            // The first turn pays for what is made once, too.
            let grows = number != 0 && kib_a_client.iter().any(|kib| KIB_A_CLIENT_MAX < *kib);
            assert!(!grows, "more than a node remembers of a client");
            *most = after.iter().map(|taken| taken.memory_kib).max().unwrap_or_default().max(*most);
            last = after;
        }
    }
    eprintln!("the most memory of a node in each round: {most:?} KiB");
}

/// Leadership is handed over again and again while clients work: no call fails, of the library or of the command line.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn figures_of_transfers() {
    let Some(count) = wanted() else { return };
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_with("lan").await;
    let (met, commands, mut working) = (Arc::new(Met::default()), Met::default(), JoinSet::new());
    (0..SURVIVORS).for_each(|number| drop(working.spawn(works(cluster.endpoints(), number, Arc::clone(&met)))));
    let client = cluster.client();
    let mut took = Vec::new();
    for _ in 0..count {
        let leader = cluster.await_leader().await;
        let began = Instant::now();
        let moved = client.service().transfer((leader % 3 + 1) as u64).await;
        took.push(began.elapsed());
        met.note("transfer", began, moved);
        let began = Instant::now();
        let output = block_in_place(|| cluster.command(&["ls"]).output()).expect("a command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        commands.note("ls", began, if output.status.success() { Ok(()) } else { Err(said) });
    }
    met.over.store(true, Ordering::Relaxed);
    while working.join_next().await.is_some() {}
    took.sort();
    let (count, median, max) = (took.len(), took[took.len() / 2], took[took.len() - 1]);
    eprintln!(
        "{count} transfers, median {median:?}, longest {max:?}: library {}; command line {}",
        met.told(),
        commands.told()
    );
    let failed = |met: &Met| met.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
    assert_eq!((failed(&met), failed(&commands)), (0, 0), "calls failed");
}
