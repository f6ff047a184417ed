//! What every system is asked for in the end: four answers that are never folded into each other, and fairness under load.

#![allow(clippy::print_stderr, reason = "a run that is scaled down says so")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, LockGuard};
use lockkeeper::compat::curator::{
    CuratorError, CuratorFramework, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2,
};
use lockkeeper::compat::etcd::{self, EtcdError};
use lockkeeper::compat::zookeeper::WriteLock;
use lockkeeper::service::LockService;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use super::curator::{curator, namespace};
use crate::changes::lose;
use crate::faulty::{Faults, Faulty};
use crate::suite::{LONG, SHORT, client, in_use};

/// Who contends, and how often each is served; `LOCKKEEPER_FULL` serves each a thousand times.
const CONTENDERS: usize = 64;
const ROUNDS: usize = 10;
const ROUNDS_FULL: usize = 1_000;
/// A cluster that does not answer for so long is out of reach.
pub(super) const OUTAGE: Duration = Duration::from_secs(2);

behaviours! {
    r_all_01_zookeeper_tells_four_answers
    r_all_01_mutexes_tell_four_answers
    r_all_01_other_curator_locks_tell_four_answers
    r_all_01_etcd_tells_four_answers
    r_all_02_contenders_are_served_alike
}

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Held,
    Refused,
    Expired,
    Unreachable,
}

/// The four paths, in the order in which they are tried.
pub(super) const FOUR: [Told; 4] = [Told::Held, Told::Refused, Told::Expired, Told::Unreachable];

pub(super) fn told(error: &ClientError) -> Told {
    match error {
        ClientError::NotAcquired { .. } => Told::Held,
        ClientError::Refused(_) | ClientError::Invalid(_) => Told::Refused,
        ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } => Told::Expired,
        ClientError::Service(_) => Told::Unreachable,
    }
}

fn told_by_curator<T: Debug>(answer: Result<T, CuratorError>) -> Told {
    match answer.expect_err("an error") {
        CuratorError::Client(error) => told(&error),
        error @ (CuratorError::IllegalMonitorState { .. } | CuratorError::IllegalState { .. }) => panic!("{error:?}"),
    }
}

fn told_by_etcd<T: Debug>(answer: Result<T, EtcdError>) -> Told {
    match answer.expect_err("an error") {
        EtcdError::Locked => Told::Held,
        EtcdError::SessionExpired => Told::Expired,
        EtcdError::Client(error) => told(&error),
        error @ (EtcdError::LockReleased | EtcdError::NotLeader | EtcdError::NoLeader) => panic!("{error:?}"),
    }
}

/// Nothing is passed on any more.
pub(super) fn cut(faults: &Faults) {
    faults.deaf.store(true, SeqCst);
    faults.detach();
}

/// R-ALL-01 for ZooKeeper's locks.
async fn r_all_01_zookeeper_tells_four_answers<S: LockService>(service: S) {
    for lock in [WriteLock::fair, WriteLock::unfair] {
        let (faulty, faults) = Faulty::new(service.clone());
        let client = client(faulty, "all-01-zk").request_wait(OUTAGE);
        let session = client.session().open().await.expect("opened");
        let _held = client.lock("held").acquire().await.expect("free");
        let _kind = client.lock("kind").permits(1, 1).acquire().await.expect("free");
        let (mut held, mut kind) = (lock(&session, "held"), lock(&session, "kind"));
        let mut seen = vec![held.try_lock().await.expect("answered").map_or(Told::Held, |_| panic!("held"))];
        seen.push(told(&kind.lock_within(LONG).await.expect_err("a semaphore")));
        lose(client.service(), &session).await;
        session.lost().await;
        seen.push(told(&held.lock_within(LONG).await.expect_err("the session is over")));
        let session = client.session().open().await.expect("opened");
        cut(&faults);
        seen.push(told(&lock(&session, "free").lock_within(LONG).await.expect_err("nobody answers")));
        assert_eq!(seen, FOUR);
    }
}

/// A connection whose calls fail soon, its faults, and somebody who holds `held` as a lock and `kind` as the other kind.
async fn framework<S: LockService>(service: S, name: &str) -> (CuratorFramework<Faulty<S>>, Arc<Faults>) {
    let (faulty, faults) = Faulty::new(service);
    let builder = CuratorFramework::builder(faulty, namespace(name)).connection_timeout(OUTAGE);
    (builder.start().await.expect("started"), faults)
}

async fn lose_session<S: LockService>(curator: &CuratorFramework<S>) {
    let session = curator.session().await.expect("lives");
    lose(curator.client().service(), &session).await;
    session.lost().await;
}

/// R-ALL-01 for Curator's mutexes.
async fn r_all_01_mutexes_tell_four_answers<S: LockService>(service: S) {
    let (here, faults) = framework(service.clone(), "all-01-mutex").await;
    let holder = Client::new(service).namespace(namespace("all-01-mutex"));
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let (mutex, task) = (|path: &str| InterProcessMutex::new(&here, path), here.task());
    let plain = |path: &str| InterProcessSemaphoreMutex::new(&here, path);
    let (own, own_plain) = (mutex("own"), plain("own/plain"));
    assert!(!mutex("held").acquire_within(&task, SHORT).await.expect("answered"));
    assert!(!plain("held").acquire_within(SHORT).await.expect("answered"));
    let (mut seen, mut seen_plain) = (vec![Told::Held], vec![Told::Held]);
    seen.push(told_by_curator(mutex("kind").acquire_within(&task, LONG).await));
    seen_plain.push(told_by_curator(plain("kind").acquire_within(LONG).await));
    own.acquire(&task).await.expect("free");
    own_plain.acquire().await.expect("free");
    lose_session(&here).await;
    seen.push(told_by_curator(own.release(&task).await));
    seen_plain.push(told_by_curator(own_plain.release().await));
    here.session().await.expect("a new one");
    cut(&faults);
    seen.push(told_by_curator(own.acquire_within(&task, LONG).await));
    seen_plain.push(told_by_curator(own_plain.acquire_within(LONG).await));
    assert_eq!((seen, seen_plain), (FOUR.to_vec(), FOUR.to_vec()));
}

/// R-ALL-01 for Curator's read-write lock and semaphore.
async fn r_all_01_other_curator_locks_tell_four_answers<S: LockService>(service: S) {
    let (here, faults) = framework(service.clone(), "all-01-others").await;
    let holder = curator(service, "all-01-others").await;
    let task = here.task();
    let side = |path: &str| InterProcessReadWriteLock::new(&here, path).read_lock();
    let semaphore = |path: &str| InterProcessSemaphoreV2::new(&here, path, 1);
    let held = InterProcessReadWriteLock::new(&holder, "held").write_lock();
    held.acquire(&holder.task()).await.expect("free");
    let _lease = InterProcessSemaphoreV2::new(&holder, "leases", 1).acquire().await.expect("free");
    assert!(!side("held").acquire_within(&task, SHORT).await.expect("answered"));
    assert!(semaphore("leases").acquire_within(SHORT).await.expect("answered").is_none());
    let (mut seen, mut seen_leases) = (vec![Told::Held], vec![Told::Held]);
    seen.push(told_by_curator(side("leases").acquire_within(&task, LONG).await));
    seen_leases.push(told_by_curator(semaphore("held").acquire_within(LONG).await));
    let own = side("own");
    own.acquire(&task).await.expect("free");
    let mut lease = semaphore("own/leases").acquire().await.expect("free");
    lose_session(&here).await;
    seen.push(told_by_curator(own.release(&task).await));
    seen_leases.push(told_by_curator(lease.close().await));
    here.session().await.expect("a new one");
    cut(&faults);
    seen.push(told_by_curator(own.acquire_within(&task, LONG).await));
    seen_leases.push(told_by_curator(semaphore("free").acquire_within(LONG).await));
    assert_eq!((seen, seen_leases), (FOUR.to_vec(), FOUR.to_vec()));
}

/// R-ALL-01 for etcd's mutex.
async fn r_all_01_etcd_tells_four_answers<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let here = client(faulty, "all-01-etcd").request_wait(OUTAGE);
    let holder = client(service, "all-01-etcd");
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let ttl = Duration::from_millis(here.status().await.expect("a status").ttl_ms_min) * 10;
    let session = etcd::Session::new(&here, ttl).await.expect("opened");
    let mut seen = vec![told_by_etcd(etcd::Mutex::new(&session, "held").try_lock().await)];
    seen.push(told_by_etcd(etcd::Mutex::new(&session, "kind").lock().await));
    let mut own = etcd::Mutex::new(&session, "own");
    own.lock().await.expect("free");
    session.close().await.expect("closed");
    seen.push(told_by_etcd(own.unlock().await));
    let session = etcd::Session::new(&here, ttl).await.expect("opened");
    let mut own = etcd::Mutex::new(&session, "own");
    cut(&faults);
    seen.push(told_by_etcd(own.lock().await));
    assert_eq!(seen, FOUR);
}

type Stands = std::pin::Pin<Box<dyn Future<Output = Result<LockGuard, ClientError>> + Send>>;

/// An acquire that stands in the queue.
async fn queued<S: LockService>(client: &Client<S>) -> Stands {
    let (stands, mut queued) = mpsc::unbounded_channel();
    let tell = move |_: &lockkeeper::model::Place| stands.send(()).unwrap_or_default();
    let mut next: Stands = Box::pin(client.lock("a").on_queued(tell).acquire());
    tokio::select! {
        _ = &mut next => panic!("somebody holds the lock"),
        told = queued.recv() => told.expect("queued"),
    }
    next
}

/// R-ALL-02: 64 contenders that always stand in the queue are served in turn: at no time has one been served more than once
/// more often than another.
async fn r_all_02_contenders_are_served_alike<S: LockService>(service: S) {
    let full = std::env::var_os("LOCKKEEPER_FULL").is_some();
    let rounds = if full { ROUNDS_FULL } else { ROUNDS };
    eprintln!("R-ALL-02: {CONTENDERS} contenders, {rounds} rounds (LOCKKEEPER_FULL=1 for {ROUNDS_FULL})");
    let client = client(service, "all-02");
    let gate = client.lock("a").acquire().await.expect("free");
    let (serves, mut served) = mpsc::unbounded_channel();
    let start = Arc::new(Barrier::new(CONTENDERS));
    let mut tasks = JoinSet::new();
    for contender in 0..CONTENDERS {
        let (client, serves, start) = (client.clone(), serves.clone(), start.clone());
        tasks.spawn(async move {
            // It stands in the queue twice from the beginning, and again as soon as it is served, so nobody falls behind by
            // being slow, and a round costs no more than the releases, one after the other.
            let mut stands = std::collections::VecDeque::from([queued(&client).await]);
            start.wait().await;
            stands.push_back(queued(&client).await);
            for round in 1..=rounds {
                let turn = stands.pop_front().expect("it stands").await.expect("its turn");
                serves.send(contender).expect("the test listens");
                let again = async { if round + 1 < rounds { Some(queued(&client).await) } else { None } };
                let (again, released) = tokio::join!(again, turn.release());
                released.expect("held");
                stands.extend(again);
            }
            // The second place of a single round is left.
            stands.clear();
        });
    }
    drop(serves);
    in_use(&client, "a", 1, 2 * CONTENDERS).await;
    gate.release().await.expect("held");
    let mut counts = [0_usize; CONTENDERS];
    while let Some(contender) = served.recv().await {
        counts[contender] += 1;
        let (least, most) = (counts.iter().min().expect("some"), counts.iter().max().expect("some"));
        assert!(most - least <= 1, "{counts:?}");
    }
    assert_eq!(counts, [rounds; CONTENDERS]);
    while let Some(done) = tasks.join_next().await {
        done.expect("a contender");
    }
}
