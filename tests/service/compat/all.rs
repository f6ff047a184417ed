//! Requirements on all systems: four answers that a caller can always distinguish, and fairness under load.

#![allow(clippy::print_stderr, reason = "a reduced run prints its size")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, LockGuard};
use lockkeeper::compat::curator::{
    CuratorError, CuratorFramework, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LeaderLatch,
};
use lockkeeper::compat::etcd::{self, EtcdError};
use lockkeeper::compat::zookeeper::WriteLock;
use lockkeeper::service::LockService;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use super::curator::{curator, namespace};
use crate::changes::lose;
use crate::faulty::{Faults, Faulty};
use crate::suite::{LONG, SHORT, client, in_use, until};

/// The number of contenders and of grants for each; with `LOCKKEEPER_FULL` each is granted a thousand times.
const CONTENDERS: usize = 64;
const ROUNDS: usize = 10;
const ROUNDS_FULL: usize = 1_000;
/// The time after which a cluster without an answer counts as unreachable.
pub(super) const OUTAGE: Duration = Duration::from_secs(2);
/// The TTL of a session that is ended from outside: its client notices the end at the next renewal.
pub(super) const ENDED_TTL: Duration = Duration::from_secs(3);

recipe_tests! {
    r_all_01_zookeeper_gives_four_answers
    r_all_01_mutexes_give_four_answers
    r_all_01_other_curator_locks_give_four_answers
    r_all_01_multi_locks_give_four_answers
    r_all_01_latches_give_four_answers
    r_all_01_etcd_gives_four_answers
    r_all_02_contenders_are_served_equally
}

/// The kinds of answer that a caller distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Held,
    Refused,
    Expired,
    Unreachable,
}

/// The four answers, in the order in which the tests provoke them.
pub(super) const FOUR: [Answer; 4] = [Answer::Held, Answer::Refused, Answer::Expired, Answer::Unreachable];

pub(super) fn answer_of(error: &ClientError) -> Answer {
    match error {
        ClientError::NotAcquired { .. } => Answer::Held,
        ClientError::Refused(_) | ClientError::Invalid(_) => Answer::Refused,
        ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } => Answer::Expired,
        ClientError::Service(_) => Answer::Unreachable,
    }
}

fn curator_answer<T: Debug>(answer: Result<T, CuratorError>) -> Answer {
    match answer.expect_err("an error") {
        CuratorError::Client(error) => answer_of(&error),
        error @ (CuratorError::IllegalMonitorState { .. } | CuratorError::IllegalState { .. }) => panic!("{error:?}"),
    }
}

fn etcd_answer<T: Debug>(answer: Result<T, EtcdError>) -> Answer {
    match answer.expect_err("an error") {
        EtcdError::Locked => Answer::Held,
        EtcdError::SessionExpired => Answer::Expired,
        EtcdError::Client(error) => answer_of(&error),
        error @ (EtcdError::LockReleased | EtcdError::NotLeader | EtcdError::NoLeader) => panic!("{error:?}"),
    }
}

/// Stops all communication with the service.
pub(super) fn cut(faults: &Faults) {
    faults.ignores_renewals.store(true, SeqCst);
    faults.detach();
}

/// R-ALL-01 for ZooKeeper's locks.
async fn r_all_01_zookeeper_gives_four_answers<S: LockService>(service: S) {
    for lock in [WriteLock::fair, WriteLock::unfair] {
        let (faulty, faults) = Faulty::new(service.clone());
        let client = client(faulty, "all-01-zk").request_wait(OUTAGE);
        let session = client.session().ttl(ENDED_TTL).open().await.expect("opened");
        let _held = client.lock("held").acquire().await.expect("free");
        let _kind = client.lock("kind").permits(1, 1).acquire().await.expect("free");
        let (mut held, mut kind) = (lock(&session, "held"), lock(&session, "kind"));
        let mut seen = vec![held.try_lock().await.expect("answered").map_or(Answer::Held, |_| panic!("held"))];
        seen.push(answer_of(&kind.lock_within(LONG).await.expect_err("a semaphore")));
        lose(client.service(), &session).await;
        session.lost().await;
        seen.push(answer_of(&held.lock_within(LONG).await.expect_err("the session has ended")));
        let session = client.session().open().await.expect("opened");
        cut(&faults);
        seen.push(answer_of(&lock(&session, "free").lock_within(LONG).await.expect_err("there is no answer")));
        assert_eq!(seen, FOUR);
    }
}

/// A connection whose calls time out early, and its faults.
async fn framework<S: LockService>(service: S, name: &str) -> (CuratorFramework<Faulty<S>>, Arc<Faults>) {
    let (faulty, faults) = Faulty::new(service);
    // Its sessions outlast an outage, and notice their end at the next renewal.
    let builder = CuratorFramework::builder(faulty, namespace(name)).connection_timeout(OUTAGE);
    let builder = builder.session_timeout(3 * OUTAGE);
    (builder.start().await.expect("started"), faults)
}

async fn lose_session<S: LockService>(curator: &CuratorFramework<S>) {
    let session = curator.session().await.expect("lives");
    lose(curator.client().service(), &session).await;
    session.lost().await;
}

/// R-ALL-01 for Curator's mutexes.
async fn r_all_01_mutexes_give_four_answers<S: LockService>(service: S) {
    let (here, faults) = framework(service.clone(), "all-01-mutex").await;
    let holder = Client::new(service).namespace(namespace("all-01-mutex"));
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let (mutex, task) = (|path: &str| InterProcessMutex::new(&here, path), here.task());
    let plain = |path: &str| InterProcessSemaphoreMutex::new(&here, path);
    let (own, own_plain) = (mutex("own"), plain("own/plain"));
    assert!(!mutex("held").acquire_within(&task, SHORT).await.expect("answered"));
    assert!(!plain("held").acquire_within(SHORT).await.expect("answered"));
    let (mut seen, mut seen_plain) = (vec![Answer::Held], vec![Answer::Held]);
    seen.push(curator_answer(mutex("kind").acquire_within(&task, LONG).await));
    seen_plain.push(curator_answer(plain("kind").acquire_within(LONG).await));
    own.acquire(&task).await.expect("free");
    own_plain.acquire().await.expect("free");
    lose_session(&here).await;
    seen.push(curator_answer(own.release(&task).await));
    seen_plain.push(curator_answer(own_plain.release().await));
    here.session().await.expect("a new one");
    cut(&faults);
    seen.push(curator_answer(own.acquire_within(&task, LONG).await));
    seen_plain.push(curator_answer(own_plain.acquire_within(LONG).await));
    assert_eq!((seen, seen_plain), (FOUR.to_vec(), FOUR.to_vec()));
}

/// R-ALL-01 for Curator's read-write lock and semaphore.
async fn r_all_01_other_curator_locks_give_four_answers<S: LockService>(service: S) {
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
    let (mut seen, mut seen_leases) = (vec![Answer::Held], vec![Answer::Held]);
    seen.push(curator_answer(side("leases").acquire_within(&task, LONG).await));
    seen_leases.push(curator_answer(semaphore("held").acquire_within(LONG).await));
    let own = side("own");
    own.acquire(&task).await.expect("free");
    let mut lease = semaphore("own/leases").acquire().await.expect("free");
    lose_session(&here).await;
    seen.push(curator_answer(own.release(&task).await));
    seen_leases.push(curator_answer(lease.close().await));
    here.session().await.expect("a new one");
    cut(&faults);
    seen.push(curator_answer(own.acquire_within(&task, LONG).await));
    seen_leases.push(curator_answer(semaphore("free").acquire_within(LONG).await));
    assert_eq!((seen, seen_leases), (FOUR.to_vec(), FOUR.to_vec()));
}

/// R-ALL-01 for Curator's multi lock.
async fn r_all_01_multi_locks_give_four_answers<S: LockService>(service: S) {
    let (here, faults) = framework(service.clone(), "all-01-multi").await;
    let holder = Client::new(service).namespace(namespace("all-01-multi"));
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let multi = |path: &'static str| InterProcessMultiLock::new(&here, ["free", path]);
    assert!(!multi("held").acquire_within(SHORT).await.expect("answered"));
    let mut seen = vec![Answer::Held, curator_answer(multi("kind").acquire_within(LONG).await)];
    let own = multi("own");
    own.acquire().await.expect("free");
    lose_session(&here).await;
    seen.push(curator_answer(own.release().await));
    here.session().await.expect("a new one");
    cut(&faults);
    seen.push(curator_answer(own.acquire_within(LONG).await));
    assert_eq!(seen, FOUR);
}

/// R-ALL-01 for Curator's leader latch: a candidate that waits does not lead, one that is refused reports it, a lost
/// session ends only the leadership, and a release without an answer is an error.
async fn r_all_01_latches_give_four_answers<S: LockService>(service: S) {
    let (here, faults) = framework(service.clone(), "all-01-latch").await;
    let holder = Client::new(service).namespace(namespace("all-01-latch"));
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let started = |path: &str| {
        let mut latch = LeaderLatch::new(&here, path, "a");
        latch.start().expect("once");
        latch
    };
    assert!(!started("held").await_within(SHORT).await.expect("it waits"));
    let mut seen = vec![Answer::Held, curator_answer(started("kind").await_leadership().await)];
    let own = started("own");
    let token = own.await_leadership().await.expect("free");
    lose_session(&here).await;
    // The candidate leads again, in another session.
    until("it leads by another grant", async || own.token().is_some_and(|again| token < again)).await;
    seen.push(Answer::Expired);
    cut(&faults);
    seen.push(curator_answer(own.close().await));
    assert_eq!(seen, FOUR);
}

/// R-ALL-01 for etcd's mutex.
async fn r_all_01_etcd_gives_four_answers<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let here = client(faulty, "all-01-etcd").request_wait(OUTAGE);
    let holder = client(service, "all-01-etcd");
    let _held = holder.lock("held").acquire().await.expect("free");
    let _kind = holder.lock("kind").permits(1, 1).acquire().await.expect("free");
    let ttl = Duration::from_millis(here.status().await.expect("a status").ttl_ms_min) * 10;
    let session = etcd::Session::new(&here, ttl).await.expect("opened");
    let mut seen = vec![etcd_answer(etcd::Mutex::new(&session, "held").try_lock().await)];
    seen.push(etcd_answer(etcd::Mutex::new(&session, "kind").lock().await));
    let mut own = etcd::Mutex::new(&session, "own");
    own.lock().await.expect("free");
    session.close().await.expect("closed");
    seen.push(etcd_answer(own.unlock().await));
    let session = etcd::Session::new(&here, ttl).await.expect("opened");
    let mut own = etcd::Mutex::new(&session, "own");
    cut(&faults);
    seen.push(etcd_answer(own.lock().await));
    assert_eq!(seen, FOUR);
}

type Pending = std::pin::Pin<Box<dyn Future<Output = Result<LockGuard, ClientError>> + Send>>;

/// Returns a pending acquire, which waits in the queue.
async fn queued<S: LockService>(client: &Client<S>) -> Pending {
    let (pending, mut queued) = mpsc::unbounded_channel();
    let report = move |_: &lockkeeper::model::Place| pending.send(()).unwrap_or_default();
    let mut next: Pending = Box::pin(client.lock("a").on_queued(report).acquire());
    tokio::select! {
        _ = &mut next => panic!("the lock is held"),
        place = queued.recv() => place.expect("queued"),
    }
    next
}

/// R-ALL-02: 64 contenders that always wait in the queue are served equally: at any time the counts of two contenders
/// differ at most by one.
async fn r_all_02_contenders_are_served_equally<S: LockService>(service: S) {
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
            // Each contender has two requests in the queue from the start, and queues again as soon as it is served. So
            // a slow contender does not fall behind, and a round costs only the releases, one after the other.
            let mut pending = std::collections::VecDeque::from([queued(&client).await]);
            start.wait().await;
            pending.push_back(queued(&client).await);
            for round in 1..=rounds {
                let guard = pending.pop_front().expect("queued").await.expect("its turn");
                serves.send(contender).expect("the test receives");
                let again = async { if round + 1 < rounds { Some(queued(&client).await) } else { None } };
                let (again, released) = tokio::join!(again, guard.release());
                released.expect("held");
                pending.extend(again);
            }
            // The second request is left over if there is only one round.
            pending.clear();
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
