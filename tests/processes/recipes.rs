//! ZooKeeper's fair queue, and a load on all systems, while the leader dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::client::{Client, ClientError};
use lockkeeper::compat::zookeeper::WriteLock;
use lockkeeper::model::{FencingToken, LockView, Mode, SessionId};
use lockkeeper::rpc::RemoteService;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::checker::{Belief, History, check};
use crate::cluster::{Cluster, PATIENCE, TURN};
use crate::wait::{wait_for, wait_until};

/// How long the load runs by default. With `LOCKKEEPER_FULL`, it runs for the minute that R-ALL-04 requires.
const LOAD: Duration = Duration::from_secs(12);
const LOAD_FULL: Duration = Duration::from_secs(60);
const QUEUE: usize = 100;
const CONTENDERS: usize = 256;
const NAMES: usize = 16;

async fn view(client: &Client<RemoteService>, name: &str) -> LockView {
    client.inspect(name).await.expect("inspected").value
}

/// The sequence numbers and sessions of the waiters, in order.
async fn queue(client: &Client<RemoteService>, name: &str) -> Vec<(u64, Option<SessionId>)> {
    view(client, name).await.waiters.into_iter().map(|waiter| (waiter.sequence, waiter.session)).collect()
}

/// R-ZKF-05: a hundred sessions wait in ZooKeeper's fair queue when the leader is killed. Afterwards the queue is the
/// same, and the lock is granted in its order under growing tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_zkf_05_a_full_queue_survives_the_leader() {
    let _turn = TURN.lock().await;
    // The `lan` profile, so that a hundred clients that reconnect do not delay the heartbeats too long.
    let mut cluster = Cluster::start_with("lan").await;
    let client = cluster.client().request_wait(PATIENCE);
    let session = client.session().ttl(PATIENCE * 2).open().await.expect("opened");
    let mut gate = WriteLock::fair(&session, "a");
    let first = gate.lock().await.expect("free");
    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..QUEUE {
        let (client, grants) = (client.clone(), grants.clone());
        tasks.spawn(async move {
            let session = client.session().ttl(PATIENCE * 2).open().await.expect("opened");
            let mut lock = WriteLock::fair(&session, "a");
            let token = lock.lock().await.expect("its turn");
            grants.send((session.id(), token)).expect("the test receives");
            assert!(lock.unlock().await.expect("held"));
        });
    }
    drop(grants);
    wait_until("all sessions queue", async || queue(&client, "a").await.len() == QUEUE).await;
    let before = queue(&client, "a").await;
    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    let new_leader = cluster.await_leader().await;
    assert_ne!(leader, new_leader);
    assert_eq!(queue(&client, "a").await, before);
    assert_eq!(view(&client, "a").await.holders[0].token, first);
    assert!(gate.is_owner() && gate.unlock().await.expect("held"));
    let mut last = first;
    for (_, session) in before {
        let (winner, token) = timeout(PATIENCE, granted.recv()).await.expect("in time").expect("granted");
        assert_eq!(Some(winner), session, "out of order");
        assert!(last < token);
        last = token;
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a waiter");
    }
    cluster.spawn(leader);
}

/// State that all contenders of the load share.
struct Load {
    started: std::time::Instant,
    stopping: AtomicBool,
    history: Mutex<History>,
    unexpected: Mutex<Vec<ClientError>>,
}

/// R-ALL-04: 256 contenders on 16 names, and the leader is killed halfway. No two hold a name at once, every token is
/// larger than the tokens before, nothing that was acknowledged is lost, and every queue drains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_all_04_a_load_survives_a_leader_kill() {
    let full = std::env::var_os("LOCKKEEPER_FULL").is_some();
    let length = if full { LOAD_FULL } else { LOAD };
    eprintln!(
        "R-ALL-04: {CONTENDERS} contenders on {NAMES} names for {length:?} (LOCKKEEPER_FULL=1 for {LOAD_FULL:?})"
    );
    let _turn = TURN.lock().await;
    // The `lan` profile, because the load uses every core and would otherwise delay the heartbeats too long.
    let mut cluster = Cluster::start_with("lan").await;
    let load = Arc::new(Load {
        started: std::time::Instant::now(),
        stopping: AtomicBool::new(false),
        history: Mutex::default(),
        unexpected: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    for contender in 0..CONTENDERS {
        // Sixteen clients with one connection and one session each, and sixteen tasks for each client.
        if contender.is_multiple_of(NAMES) {
            let client = cluster.client();
            for task in contender..contender + NAMES {
                tasks.spawn(contend(load.clone(), client.clone(), task));
            }
        }
    }
    sleep(length / 2).await;
    let leader = cluster.await_leader().await;
    let killed = load.started.elapsed();
    cluster.kill(leader);
    sleep(length / 4).await;
    cluster.spawn(leader);
    sleep(length / 4).await;
    load.stopping.store(true, SeqCst);
    while let Some(done) = timeout(PATIENCE * 3, tasks.join_next()).await.expect("every contender ends") {
        done.expect("a contender");
    }
    drains(&cluster.client()).await;
    judge(&load, killed).await;
}

async fn contend(load: Arc<Load>, client: Client<RemoteService>, contender: usize) {
    let name = format!("load/{}", contender % NAMES);
    while !load.stopping.load(SeqCst) {
        let asked = load.started.elapsed();
        let guard = match client.lock(&name).acquire().await {
            Ok(guard) => guard,
            // The next turn replaces a lost session and retries a request that found no leader.
            Err(ClientError::SessionLost { .. } | ClientError::Service(_) | ClientError::HoldEnded { .. }) => continue,
            Err(error) => return load.unexpected.lock().await.push(error),
        };
        let begin = load.started.elapsed();
        drop(guard.run(tokio::task::yield_now()).await);
        let now = load.started.elapsed();
        let end = now.min(now + guard.valid_for());
        let (lock, token, session) = (guard.name().clone(), guard.token(), guard.session());
        let belief =
            Belief { client: contender, lock: lock.clone(), token, session, mode: Mode::Exclusive, asked, begin, end };
        load.history.lock().await.beliefs.push(belief);
        match guard.release().await {
            Ok(_) => load.history.lock().await.releases.push((lock, token)),
            Err(ClientError::SessionLost { .. } | ClientError::Service(_)) => {}
            Err(error) => return load.unexpected.lock().await.push(error),
        }
    }
}

/// Waits until there are no holders and no waiters.
pub(crate) async fn drains(client: &Client<RemoteService>) {
    wait_for("no holder and no waiter is left", async || {
        let totals = client.totals().await.expect("totals").value;
        if totals.holders == 0 && totals.waiters == 0 { Ok(()) } else { Err(totals) }
    })
    .await;
}

async fn judge(load: &Load, killed: Duration) {
    let unexpected = load.unexpected.lock().await;
    assert!(unexpected.is_empty(), "unexpected errors: {unexpected:#?}");
    let history = load.history.lock().await;
    let violations = check(&history, false);
    assert!(violations.is_empty(), "{violations:#?}");
    let beliefs = || history.beliefs.iter();
    let through = beliefs().filter(|belief| belief.asked < killed && killed < belief.begin).count();
    let after = beliefs().filter(|belief| killed < belief.asked).count();
    let first = beliefs().map(|belief| belief.begin).filter(|begin| killed < *begin).min();
    eprintln!(
        "R-ALL-04: {} grants; killed at {killed:?}, the next grant at {first:?}, {through} asked for before the kill and \
         granted after it, {after} asked for after it",
        history.beliefs.len()
    );
    for name in 0..NAMES {
        let name = format!("load/{name}");
        let mut of_name: Vec<_> = beliefs().filter(|belief| belief.lock.as_str() == name).collect();
        of_name.sort_by_key(|belief| belief.begin);
        let tokens: Vec<FencingToken> = of_name.iter().map(|belief| belief.token).collect();
        assert!(tokens.is_sorted_by(|one, next| one < next), "tokens of {name} did not grow: {tokens:?}");
        assert!(of_name.last().is_some_and(|last| killed < last.begin), "{name} was not granted after the kill");
    }
    assert!(0 < through, "no request waited through the failover");
}
