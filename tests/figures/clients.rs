//! Many clients that die or change nodes, and their effect on nodes and on other clients.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use lockkeeper::client::Client;
use lockkeeper::limits::TOMBSTONE_MS;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{LockService, Operation};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::cluster::{Cluster, PATIENCE};
use crate::http::get;

const TTL: Duration = Duration::from_secs(10);
const SESSIONS_A_CLIENT: usize = 500;
const OPENED_AT_ONCE: usize = 64;
const SURVIVORS: usize = 8;
const DYING_AT_ONCE: usize = 8;
const TURNS: usize = 6;
/// The first round fills the bounded tables of a node; later rounds must not need more memory.
const ROUNDS: usize = 4;
/// Several times the measured value, and far less than the memory of a connection that is open.
const KIB_A_CLIENT_MAX: f64 = 16.0;
const SHORT_TTL: Duration = Duration::from_secs(3);

fn client_of(endpoints: &[String]) -> Client<RemoteService> {
    Client::new(RemoteService::new(RemoteSettings::new(endpoints.to_vec())).expect("endpoints"))
}

/// Calls of clients while nodes or other clients fail.
#[derive(Default)]
struct Calls {
    over: AtomicBool,
    calls: AtomicUsize,
    failures: Mutex<Vec<String>>,
    longest: Mutex<Duration>,
}

impl Calls {
    fn note<T, E: std::fmt::Debug>(&self, what: &str, began: Instant, answer: Result<T, E>) -> Option<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = began.elapsed().max(*longest);
        let refused =
            |error| self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what}: {error:?}"));
        answer.map_err(refused).ok()
    }

    fn summary(&self) -> String {
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

/// Acquires and releases its own lock in a loop, in one session.
async fn acquire_and_release(endpoints: Vec<String>, number: usize, calls: Arc<Calls>) {
    let session = client_of(&endpoints).session().ttl(TTL).open().await.expect("a session");
    while !calls.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        if let Some(guard) = calls.note("acquire", began, session.lock(&format!("alive-{number}")).acquire().await) {
            let began = Instant::now();
            calls.note("release", began, guard.release().await);
        }
        sleep(Duration::from_millis(20)).await;
    }
    calls.note("close", Instant::now(), session.close().await);
}

/// Opens sessions, each with a lock. No guard is dropped, just as in a process that is killed.
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

/// Many sessions lose their process at once. Prints how long the sessions remain and how the other clients are
/// affected.
pub(crate) async fn sessions(count: usize) {
    let cluster = Cluster::start_with("lan").await;
    let (calls, mut alive) = (Arc::new(Calls::default()), JoinSet::new());
    (0..SURVIVORS)
        .for_each(|number| drop(alive.spawn(acquire_and_release(cluster.endpoints(), number, Arc::clone(&calls)))));
    let doomed = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let opening = Instant::now();
    doomed.spawn(open_many(cluster.endpoints(), count)).await.expect("opened");
    let (client, opened) = (cluster.client(), opening.elapsed());
    let there = client.totals().await.expect("totals").value.sessions;
    assert_eq!(there, (count + SURVIVORS) as u64, "all sessions live");
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
    calls.over.store(true, Ordering::Relaxed);
    while alive.join_next().await.is_some() {}
    eprintln!(
        "{count} sessions, opened in {opened:?}, died at once: the first ended after {first:?}, the last after {last:?} (TTL {TTL:?}); other clients: {}",
        calls.summary()
    );
}

/// Resources that a node's process uses.
#[derive(Debug, Clone, Copy)]
struct Resources {
    memory_kib: u64,
    descriptors: usize,
    threads: usize,
    tasks: usize,
}

impl Resources {
    fn by(cluster: &Cluster, node: usize) -> Self {
        let process = cluster.process(node);
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let memory =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        let entries = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, Iterator::count);
        let metrics = get(&cluster.http(node), "/metrics");
        let tasks = metrics
            .lines()
            .find_map(|line| line.strip_prefix("lockkeeper_runtime_tasks{")?.split_once("} ")?.1.parse().ok());
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

/// Returns true if the nodes use about as many descriptors, threads and tasks as before; memory is not compared. The
/// tolerances do not depend on the number of clients: leadership may have moved, nodes may have connected to each
/// other, and logs may have more files.
fn are_freed(after: &[Resources], before: &[Resources]) -> bool {
    let sum = |all: &[Resources], of: fn(&Resources) -> usize| all.iter().map(of).sum::<usize>();
    let within = |of: fn(&Resources) -> usize, more: usize| sum(after, of) <= sum(before, of) + more;
    within(|used| used.descriptors, 32) && within(|used| used.threads, 6) && within(|used| used.tasks, 64)
}

/// Connects, opens a session, acquires a lock and disappears without closing anything.
fn connect_and_die(endpoints: &[String], number: usize) {
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let held = runtime.block_on(async {
        let session = client_of(endpoints).session().ttl(SHORT_TTL).open().await.expect("a session");
        let guard = session.lock(&format!("cycle-{number}")).acquire().await.expect("free");
        (session, guard)
    });
    // Without their runtime they cannot send a release or a close.
    drop(runtime);
    drop(held);
}

/// Runs one turn of clients that connect and die, and waits until their sessions have ended. Returns the resources that
/// the nodes use then.
async fn turn(
    cluster: &Cluster,
    client: &Client<RemoteService>,
    before: &[Resources],
    first: usize,
    count: usize,
) -> Vec<Resources> {
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
        let after = Resources::of(cluster);
        if are_freed(&after, before) {
            return after;
        }
        assert!(ended.elapsed() < SHORT_TTL + PATIENCE, "resources were not freed: {after:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Clients connect and die, turn after turn. Descriptors, threads and tasks of the nodes return to the values from
/// before. Memory is printed for the first round and for later rounds, each of which starts when the records of the
/// sessions of the previous round have been removed.
pub(crate) async fn connections(count: usize) {
    let cluster = Cluster::start_with("lan").await;
    let client = cluster.client();
    client.totals().await.expect("totals");
    // A node counts its tasks once a second.
    sleep(Duration::from_secs(2)).await;
    let before = Resources::of(&cluster);
    eprintln!("each node before: {before:?}");
    let mut most = [0; ROUNDS];
    for (round, most) in most.iter_mut().enumerate() {
        if round != 0 {
            sleep(Duration::from_millis(TOMBSTONE_MS)).await;
            eprintln!("after {TOMBSTONE_MS} ms: {:?}", Resources::of(&cluster));
        }
        let mut last = if round == 0 { before.clone() } else { Resources::of(&cluster) };
        for number in TURNS * round..TURNS * (round + 1) {
            let after = turn(&cluster, &client, &before, number * count, count).await;
            let grown = |(after, last): (&Resources, &Resources)| {
                (after.memory_kib as f64 - last.memory_kib as f64) / count as f64
            };
            let kib_a_client: Vec<f64> = after.iter().zip(&last).map(grown).collect();
            eprintln!("after {} cycles: {kib_a_client:.1?} KiB a client, {after:?}", (number + 1) * count);
            // The first turn also pays for what is allocated once.
            let grows = number != 0 && kib_a_client.iter().any(|kib| KIB_A_CLIENT_MAX < *kib);
            assert!(!grows, "the node keeps more memory for each client than the limit");
            *most = after.iter().map(|used| used.memory_kib).max().unwrap_or_default().max(*most);
            last = after;
        }
    }
    eprintln!("largest memory of a node in each round: {most:?} KiB");
}

/// Leadership is transferred repeatedly while clients work. No call of the library or of the command line fails.
pub(crate) async fn transfers(count: usize) {
    let cluster = Cluster::start_with("lan").await;
    let (calls, commands, mut working) = (Arc::new(Calls::default()), Calls::default(), JoinSet::new());
    (0..SURVIVORS)
        .for_each(|number| drop(working.spawn(acquire_and_release(cluster.endpoints(), number, Arc::clone(&calls)))));
    let client = cluster.client();
    let mut took = Vec::new();
    for _ in 0..count {
        let leader = cluster.await_leader().await;
        let began = Instant::now();
        let moved = client.service().operate(Operation::Transfer((leader % 3 + 1) as u64)).await;
        took.push(began.elapsed());
        calls.note("transfer", began, moved);
        let began = Instant::now();
        let output = block_in_place(|| cluster.command(&["ls"]).output()).expect("a command");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        commands.note("ls", began, if output.status.success() { Ok(()) } else { Err(stderr) });
    }
    calls.over.store(true, Ordering::Relaxed);
    while working.join_next().await.is_some() {}
    took.sort();
    let (count, median, max) = (took.len(), took[took.len() / 2], took[took.len() - 1]);
    eprintln!(
        "{count} transfers, median {median:?}, longest {max:?}: library {}; command line {}",
        calls.summary(),
        commands.summary()
    );
    let failed = |calls: &Calls| calls.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
    assert_eq!((failed(&calls), failed(&commands)), (0, 0), "calls failed");
}
