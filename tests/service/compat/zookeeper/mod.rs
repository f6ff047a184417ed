//! ZooKeeper's fair and unfair locks.

mod znodes;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

use lockkeeper::client::{Client, ClientError, Session, Watch};
use lockkeeper::compat::zookeeper::WriteLock;
use lockkeeper::model::{Claim, Event, EventKind};
use lockkeeper::service::{ErrorCode, LockService};
use tokio::task::JoinSet;

use super::probe::Probe;
use crate::changes::lose;
use crate::faulty::Faulty;
use crate::suite::{LONG, PATIENT, POLL, SHORT, client, in_use, session, short_session};
use znodes::{Nodes, OnEvent};

const WAITERS: usize = 1_000;
/// The bound on wake-ups. Each waiter is woken once; a change of leader, or a short loss of the quorum, wakes all
/// waiters once more, and a slow machine can cause several of those. The bound is far below one wake-up for each waiter
/// and release.
const WAKE_UPS_MAX: u64 = 16 * WAITERS as u64;
/// The number of waiters of one session, which is below the requests that fit into one stream at once.
const WAITERS_A_SESSION: usize = 100;

recipe_tests! {
    r_zkf_01_a_release_wakes_only_the_successor
    r_zkf_02_a_waiter_that_dies_grants_nothing
    r_zkf_03_the_next_one_follows_a_dead_holder
    r_zkf_04_a_grant_before_the_wait_is_not_missed
    r_zku_01_one_waiter_always_wins
    r_zku_02_a_release_wakes_one_of_a_thousand
    r_cmp_01_waiting_costs_no_requests
    w_zk_01_a_lost_answer_leaves_one_place
    w_zk_02_a_new_session_inherits_nothing
    a_lock_is_used_by_its_own_names
}

/// Collects the events of the watched lock, up to this many releases.
async fn lock_events<S: LockService>(mut watch: Watch<S>, releases: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut released = 0;
    while released < releases {
        let event = watch.next().await.expect("an event");
        if event.subject.lock().is_some() {
            released += usize::from(matches!(event.kind, EventKind::Released { .. }));
            events.push(event);
        }
    }
    events
}

/// Returns the sequence numbers of the granted requests, in the order of the grants, and the number of grants that each
/// release made.
fn grants(events: &[Event]) -> (Vec<u64>, Vec<usize>) {
    let mut sequences: BTreeMap<Claim, u64> = BTreeMap::new();
    let (mut granted, mut woken) = (Vec::new(), Vec::new());
    for event in events {
        if let (EventKind::Queued { sequence }, Some(claim)) = (&event.kind, event.subject.claim()) {
            sequences.insert(claim, *sequence);
        }
        if let (EventKind::Granted { .. }, Some(claim)) = (&event.kind, event.subject.claim()) {
            granted.push(sequences.get(&claim).copied().unwrap_or_default());
        }
        if let EventKind::Released { .. } = &event.kind {
            let index = event.position.index;
            let of_it =
                |other: &&Event| other.position.index == index && matches!(other.kind, EventKind::Granted { .. });
            woken.push(events.iter().filter(of_it).count());
        }
    }
    (granted, woken)
}

/// Runs a thousand waiters in ten sessions, each of which acquires and releases the lock.
async fn thousand<S: LockService>(client: &Client<S>, name: &'static str, lock: fn(&Session<S>, &str) -> WriteLock<S>) {
    let gate = client.lock(name).acquire().await.expect("free");
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS / WAITERS_A_SESSION {
        // No session may expire here, even if a thousand waiters take long on a slow machine.
        let session = client.session().ttl(PATIENT).open().await.expect("opened");
        for _ in 0..WAITERS_A_SESSION {
            let mut lock = lock(&session, name);
            tasks.spawn(async move {
                let token = lock.lock().await.expect("its turn");
                assert_eq!(lock.id(), Some(token));
                assert!(lock.unlock().await.expect("released"));
            });
        }
    }
    in_use(client, name, 1, WAITERS).await;
    gate.release().await.expect("released");
    while let Some(done) = tasks.join_next().await {
        done.expect("a waiter");
    }
}

/// R-ZKF-01: a thousand waiters are granted in the order of the queue, and each is woken once. If all watch the holder,
/// which ZooKeeper's documentation warns about, each release wakes all of them.
async fn r_zkf_01_a_release_wakes_only_the_successor<S: LockService>(service: S) {
    let queue = || {
        let mut nodes = Nodes::default();
        for _ in 0..WAITERS {
            nodes.create("client");
        }
        nodes
    };
    let herd = queue().drain(|nodes, node| nodes.holder().filter(|holder| *holder != node));
    let chain = queue().drain(Nodes::before);
    assert_eq!((herd, chain), (WAITERS * (WAITERS - 1) / 2, WAITERS - 1));

    let (probe, seen) = Probe::new(service);
    let client = client(probe, "zkf-01");
    let watch = client.watch("zkf-01", None).await.expect("watching");
    thousand(&client, "zkf-01", WriteLock::fair).await;
    assert!(seen.wake_ups.load(SeqCst) < WAKE_UPS_MAX);
    let (granted, woken) = grants(&lock_events(watch, WAITERS + 1).await);
    assert!(granted.is_sorted(), "{granted:?}");
    assert_eq!(woken, [vec![1; WAITERS], vec![0]].concat());
}

/// R-ZKF-02: if a waiter in the middle dies, the one behind it continues to wait. A client that treats the event as a
/// grant believes that it holds the lock, while the holder still does.
async fn r_zkf_02_a_waiter_that_dies_grants_nothing<S: LockService>(service: S) {
    let mut nodes = Nodes::default();
    let (holder, middle, last) = (nodes.create("a"), nodes.create("b"), nodes.create("c"));
    nodes.watch(middle, last);
    let notified = nodes.expire("b");
    assert_eq!((nodes.believers(&notified, OnEvent::Believe), nodes.holder()), (vec![last], Some(holder)));
    assert!(nodes.believers(&notified, OnEvent::LookAgain).is_empty());

    let client = client(service.clone(), "zkf-02");
    let (first, second) = (session(service.clone(), "zkf-02").await, session(service.clone(), "zkf-02").await);
    let third = session(service.clone(), "zkf-02").await;
    let (mut holder, mut middle) = (WriteLock::fair(&first, "a"), WriteLock::fair(&second, "a"));
    let mut last = WriteLock::fair(&third, "a");
    holder.lock().await.expect("free");
    let waits = async {
        let died = middle.lock().await.expect_err("its session ends");
        assert_eq!(died.code(), ErrorCode::SessionEnded);
    };
    let dies = async {
        in_use(&client, "a", 1, 1).await;
        let mut waits = Box::pin(last.lock());
        tokio::select! {
            granted = &mut waits => panic!("granted while held: {granted:?}"),
            () = in_use(&client, "a", 1, 2) => {}
        }
        lose(&service, &second).await;
        tokio::select! {
            granted = &mut waits => panic!("granted while held: {granted:?}"),
            () = in_use(&client, "a", 1, 1) => {}
        }
        assert!(holder.is_owner() && holder.unlock().await.expect("still held"));
        waits.await.expect("its turn");
    };
    tokio::join!(waits, dies);
}

/// R-ZKF-03: the lock of a holder that dies goes to the next waiter, and the old holder has detected the loss before.
async fn r_zkf_03_the_next_one_follows_a_dead_holder<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (dead, next) = (short_session(faulty, "zkf-03").await, session(service, "zkf-03").await);
    let (mut holder, mut waiter) = (WriteLock::fair(&dead, "a"), WriteLock::fair(&next, "a"));
    let lost = holder.lock().await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    let token = waiter.lock().await.expect("the holder is dead");
    assert!(lost < token && !holder.is_owner());
}

/// R-ZKF-04: a grant between the queue entry and the wait for it is not missed. A client that watches a node that was
/// already deleted is never notified.
async fn r_zkf_04_a_grant_before_the_wait_is_not_missed<S: LockService>(service: S) {
    let mut nodes = Nodes::default();
    let (holder, waiter) = (nodes.create("a"), nodes.create("b"));
    let listed = nodes.before(waiter).expect("the holder");
    assert!(nodes.delete(holder).is_empty());
    nodes.watch(listed, waiter);
    assert_eq!(nodes.holder(), Some(waiter), "it holds the lock, but is not notified");
    assert!(nodes.expire("a").is_empty());

    let (probe, seen) = Probe::new(service);
    let (one, two) = (session(probe.clone(), "zkf-04").await, session(probe, "zkf-04").await);
    let (mut holder, mut waiter) = (WriteLock::fair(&one, "a"), WriteLock::fair(&two, "a"));
    holder.lock().await.expect("free");
    seen.waits_paused.store(true, SeqCst);
    let (granted, ()) = tokio::join!(waiter.lock_within(LONG), async {
        seen.paused.notified().await;
        assert!(holder.unlock().await.expect("held"));
        in_use(&one.client(), "a", 1, 0).await;
        seen.resume.notify_waiters();
    });
    assert_eq!(granted.expect("answered"), waiter.id());
    assert!(waiter.is_owner());
}

/// R-ZKU-01: of unfair waiters and newcomers one always wins, in any order, and none of them passes a fair waiter.
async fn r_zku_01_one_waiter_always_wins<S: LockService>(service: S) {
    let client = client(service.clone(), "zku-01");
    let session = session(service, "zku-01").await;
    let mut holder = WriteLock::unfair(&session, "a");
    holder.lock().await.expect("free");
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let mut lock = WriteLock::unfair(&session, "a");
        tasks.spawn(async move {
            lock.lock().await.expect("eventually granted");
            lock
        });
    }
    in_use(&client, "a", 1, 16).await;
    holder.unlock().await.expect("held");
    for left in (0..16).rev() {
        let mut newcomer = WriteLock::unfair(&session, "a");
        let mut winner = tasks.join_next().await.expect("one waiter wins").expect("a waiter");
        assert_eq!(newcomer.try_lock().await.expect("answered"), None, "the lock was granted to a waiter");
        in_use(&client, "a", 1, left).await;
        winner.unlock().await.expect("held");
    }
    holder.lock().await.expect("free");
    let mut fair = WriteLock::fair(&session, "a");
    let mut waits = Box::pin(fair.lock());
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    let mut late = WriteLock::unfair(&session, "a");
    let mut barges = Box::pin(late.lock());
    tokio::select! {
        _ = &mut barges => panic!("held"),
        () = in_use(&client, "a", 1, 2) => {}
    }
    holder.unlock().await.expect("held");
    tokio::select! {
        _ = &mut barges => panic!("an unfair request passed a fair one"),
        granted = &mut waits => drop(granted.expect("before the unfair one")),
    }
    drop(waits);
    fair.unlock().await.expect("held");
    barges.await.expect("its turn");
}

/// R-ZKU-02: of a thousand unfair waiters a release wakes one and considers only a few. If all were notified and tried,
/// each release would cost as many tries as there are waiters.
async fn r_zku_02_a_release_wakes_one_of_a_thousand<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service);
    let client = client(probe, "zku-02");
    let watch = client.watch("zku-02", None).await.expect("watching");
    thousand(&client, "zku-02", WriteLock::unfair).await;
    assert!(seen.wake_ups.load(SeqCst) < WAKE_UPS_MAX);
    let (_, woken) = grants(&lock_events(watch, WAITERS + 1).await);
    assert_eq!(woken, [vec![1; WAITERS], vec![0]].concat());
}

/// R-CMP-01: a polling client sends a request for each try; a client that waits for a notification sends none, except
/// the renewals of its session.
async fn r_cmp_01_waiting_costs_no_requests<S: LockService>(service: S) {
    let (client, holder) = (client(service.clone(), "cmp-01"), session(service.clone(), "cmp-01").await);
    let (poller, polls) = Probe::new(service.clone());
    let (waiting, waits_seen) = Probe::new(service);
    let (poller, waiting) = (short_session(poller, "cmp-01").await, short_session(waiting, "cmp-01").await);
    let guard = holder.lock("a").acquire().await.expect("free");
    let mut waiter = WriteLock::fair(&waiting, "a");
    let mut waits = Box::pin(waiter.lock());
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    let before = waits_seen.requests.load(SeqCst);
    let renewed = waits_seen.renewals.load(SeqCst);
    let polling = async {
        while waits_seen.renewals.load(SeqCst) < renewed + 3 {
            assert_eq!(WriteLock::fair(&poller, "a").try_lock().await.expect("answered"), None);
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = polling => {}
    }
    assert_eq!(waits_seen.requests.load(SeqCst), before, "it sent requests while it waited");
    assert!(10 < polls.requests.load(SeqCst));
    guard.release().await.expect("released");
    waits.await.expect("its turn");
}

/// W-ZK-01: if the answer to a request is lost, the request is repeated with its number and has one place in the queue.
/// A client that creates a second node leaves the first behind, and no client deletes it.
async fn w_zk_01_a_lost_answer_leaves_one_place<S: LockService>(service: S) {
    let mut nodes = Nodes::default();
    let _lost = nodes.create("a");
    let known = nodes.create("a");
    nodes.delete(known);
    assert_eq!(nodes.places_of("a"), 1, "a node that the client does not know of stays and blocks the lock");

    let (faulty, faults) = Faulty::new(service.clone());
    let client = client(service.clone(), "zk-01");
    let (one, two) = (session(faulty, "zk-01").await, session(service, "zk-01").await);
    let (mut first, mut second) = (WriteLock::fair(&one, "a"), WriteLock::fair(&two, "a"));
    faults.answers_lost.store(2, SeqCst);
    first.lock().await.expect("free");
    in_use(&client, "a", 1, 0).await;
    second.lock_within(SHORT).await.expect("answered");
    first.unlock().await.expect("held");
    second.lock().await.expect("free");
    faults.answers_lost.store(2, SeqCst);
    let mut waits = Box::pin(first.lock());
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    assert_eq!(second.contenders().await.expect("asked").len(), 2);
    second.unlock().await.expect("held");
    waits.await.expect("its turn");
    first.unlock().await.expect("held");
    in_use(&client, "a", 0, 0).await;
}

/// W-ZK-02: a client that reconnects in a new session does not inherit the hold of its old session; it waits for that
/// session's end. A client that looks for a node with its own name believes that it is the holder until that node is
/// deleted.
async fn w_zk_02_a_new_session_inherits_nothing<S: LockService>(service: S) {
    let mut nodes = Nodes::default();
    nodes.create("old session of a");
    let own = |nodes: &Nodes| nodes.places_of("old session of a") == 1;
    assert!(own(&nodes), "the reconnected client finds its old node");
    nodes.expire("old session of a");
    assert!(!own(&nodes) && nodes.holder().is_none(), "it loses the lock while it works");

    let (faulty, faults) = Faulty::new(service.clone());
    let old = short_session(faulty, "zk-02").await;
    let mut before = WriteLock::fair(&old, "a");
    let token = before.lock().await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    let new = session(service, "zk-02").await;
    let mut after = WriteLock::fair(&new, "a");
    assert_eq!(after.try_lock().await.expect("answered"), None, "the old session has not ended yet");
    assert!(!after.is_owner());
    let next = after.lock().await.expect("the old session has ended");
    assert!(token < next && !before.is_owner());
    let gone = before.unlock().await.expect_err("lost");
    assert!(matches!(gone, ClientError::SessionLost { .. }), "{gone:?}");
    assert!(after.is_owner());
}

/// The calls behave as in the original: a second lock is a no-op, and an unlock without a hold returns false.
async fn a_lock_is_used_by_its_own_names<S: LockService>(service: S) {
    let session = session(service, "zk-names").await;
    let (mut lock, mut other) = (WriteLock::fair(&session, "a"), WriteLock::fair(&session, "a"));
    assert!(!lock.unlock().await.expect("nothing to do"));
    let token = lock.try_lock().await.expect("answered").expect("free");
    assert_eq!((lock.lock().await.expect("its own"), lock.id()), (token, Some(token)));
    assert_eq!(other.lock_within(SHORT).await.expect("answered"), None);
    let contenders = other.contenders().await.expect("asked");
    assert_eq!((contenders.len(), contenders[0].token, contenders[0].holds()), (1, Some(token), true));
    assert!(lock.unlock().await.expect("held") && !lock.is_owner());
    assert!(token < other.lock().await.expect("free"));
}
