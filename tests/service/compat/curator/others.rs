//! Namespaces, connections, and the leader latch.

use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use futures_util::FutureExt as _;
use lockkeeper::client::{Client, ClientError};
use lockkeeper::compat::curator::{CuratorError, CuratorFramework, InterProcessMutex, LeaderLatch};
use lockkeeper::limits::RETRY_MS_MAX;
use lockkeeper::model::{EndReason, Outcome, QuotaKind, Refusal, TokenState};
use lockkeeper::service::{ErrorCode, LockService};

use super::super::all::{OUTAGE, cut};
use super::{curator, is_state, namespace, short_curator};
use crate::changes::lose;
use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, in_use, until};

recipe_tests! {
    r_ns_01_namespaces_are_separate
    w_cur_01_a_namespace_is_not_forgotten
    w_cur_03_many_locks_are_one_session
    a_call_that_is_not_polled_keeps_no_other_from_a_new_session
    a_latch_leads_until_it_closes
    a_latch_campaigns_again_after_a_loss
    a_latch_pauses_after_a_refusal
    a_latch_queues_again_at_once_after_a_break
    a_latch_reports_a_release_without_an_answer
}

/// R-NS-01: the same name in two namespaces is two locks, and a token of one is not valid in the other.
async fn r_ns_01_namespaces_are_separate<S: LockService>(service: S) {
    let orders = curator(service, "ns-01-orders").await;
    let billing = orders.using_namespace(namespace("ns-01-billing")).start().await.expect("started");
    let (mutex, other) = (InterProcessMutex::new(&orders, "a"), InterProcessMutex::new(&billing, "a"));
    let (task, next) = (orders.task(), billing.task());
    mutex.acquire(&task).await.expect("free");
    assert!(other.acquire_within(&next, LONG).await.expect("free as well"));
    let (token, foreign) = (mutex.token(&task).expect("held"), other.token(&next).expect("held"));
    let check = async |client: &Client<S>, token| client.check("a", token).await.expect("checked").state;
    assert_eq!(check(orders.client(), token).await, TokenState::Valid);
    assert_eq!(check(orders.client(), foreign).await, TokenState::Stale);
    let refused = orders.client().break_hold("a", foreign, "not ours").await.expect_err("not here");
    assert_eq!(refused.code(), ErrorCode::HeldByOther);
    assert!(other.is_owned_by(&next));
    mutex.release(&task).await.expect("held");
    other.release(&next).await.expect("held");
}

/// W-CUR-01: the example creates a facade with a namespace, discards it, and locks with the old client, so that two
/// services use one path. Here a connection gets its namespace when it is created, and another namespace is another
/// connection.
async fn w_cur_01_a_namespace_is_not_forgotten<S: LockService>(service: S) {
    struct Facade {
        namespace: &'static str,
    }
    impl Facade {
        fn using_namespace(&self, namespace: &'static str) -> Facade {
            let _ = self.namespace;
            Facade { namespace }
        }
        fn node(&self, path: &str) -> String {
            format!("/{}{path}", self.namespace)
        }
    }
    let (orders, billing) = (Facade { namespace: "" }, Facade { namespace: "" });
    let _thrown_away = (orders.using_namespace("orders"), billing.using_namespace("billing"));
    assert_eq!(orders.node("/a"), billing.node("/a"), "two services, one lock");

    let orders = curator(service.clone(), "cur-01-orders").await;
    let billing = curator(service, "cur-01-billing").await;
    let (mutex, other) = (InterProcessMutex::new(&orders, "a"), InterProcessMutex::new(&billing, "a"));
    let (task, next) = (orders.task(), billing.task());
    mutex.acquire(&task).await.expect("free");
    assert!(other.acquire_within(&next, LONG).await.expect("another service"));
    // Another connection does not change this one, even if it is dropped.
    drop(orders.using_namespace(namespace("cur-01-billing")).start().await.expect("started"));
    assert!(!mutex.acquire_within(&orders.task(), SHORT).await.expect("answered"));
    in_use(orders.client(), "a", 1, 0).await;
}

/// W-CUR-03: the example opens a client for each lock object and closes none. Here all locks of a connection share one
/// session, which is closed when the last lock is dropped.
async fn w_cur_03_many_locks_are_one_session<S: LockService>(service: S) {
    /// The lock object of the example, which opens a connection and never closes it.
    struct LockObject;
    impl LockObject {
        fn connect(server: &mut Vec<usize>) -> Self {
            server.push(server.len());
            Self
        }
    }
    let mut server = Vec::new();
    drop((0..20).map(|_| LockObject::connect(&mut server)).collect::<Vec<_>>());
    assert_eq!(server.len(), 20, "a connection for each lock object");

    let curator = curator(service.clone(), "cur-03").await;
    let observer = Client::new(service).namespace(namespace("cur-03"));
    let sessions = async || observer.all_sessions().await.expect("listed").value.len();
    let task = curator.task();
    let mutexes: Vec<_> = (0..20).map(|n| InterProcessMutex::new(&curator, &format!("lock/{n}"))).collect();
    for mutex in &mutexes {
        mutex.acquire(&task).await.expect("free");
    }
    assert_eq!(sessions().await, 1);
    drop(curator);
    assert_eq!(observer.list("").all().await.expect("listed").value.len(), 20);
    drop(mutexes);
    until("the session is closed", async || sessions().await == 0).await;
    assert!(observer.list("").all().await.expect("listed").value.is_empty());
}

/// The session of a connection is lost, and the first call that needs another one is not polled while that one opens.
/// Another call of the connection gets the new session.
async fn a_call_that_is_not_polled_keeps_no_other_from_a_new_session<S: LockService>(service: S) {
    let curator = short_curator(service.clone(), "reopened").await;
    let lost = curator.session().await.expect("opened");
    lose(&service, &lost).await;
    lost.lost().await;
    let mut first = pin!(curator.session());
    drop(first.as_mut().now_or_never());
    let second = tokio::time::timeout(LONG, curator.session()).await.expect("in time").expect("opened");
    assert_ne!(second.id(), lost.id());
}

/// One of three candidates leads until it closes. Then the candidate that has waited longest leads.
async fn a_latch_leads_until_it_closes<S: LockService>(service: S) {
    let curator = curator(service, "latch").await;
    let mut latches: Vec<_> = ["a", "b", "c"].iter().map(|id| LeaderLatch::new(&curator, "office", id)).collect();
    assert!(latches[0].await_leadership().await.is_err_and(|error| is_state(&error)), "it was not started");
    assert_eq!(latches[0].leader().await.expect("asked"), None);
    for (latch, others) in latches.iter_mut().zip(0..) {
        latch.start().expect("once");
        in_use(curator.client(), "office", 1, others).await;
    }
    assert!(latches[0].start().is_err_and(|error| is_state(&error)));
    let mut last = None;
    while let Some(leader) = (!latches.is_empty()).then(|| latches.remove(0)) {
        let token = leader.await_leadership().await.expect("its turn");
        assert!(leader.has_leadership() && last < Some(token));
        last = Some(token);
        for other in &latches {
            assert!(!other.await_within(SHORT).await.expect("it waits"));
        }
        let seen: Vec<_> = leader.participants().await.expect("asked").into_iter().map(|one| one.id).collect();
        let expected: Vec<_> = std::iter::once(leader.id()).chain(latches.iter().map(|latch| latch.id())).collect();
        assert_eq!(seen, expected);
        assert_eq!(leader.leader().await.expect("asked").map(|one| one.id).as_deref(), Some(leader.id()));
        leader.close().await.expect("closed");
    }
    in_use(curator.client(), "office", 0, 0).await;
}

/// A leader that loses its session stops leading before another candidate leads, and then campaigns again.
async fn a_latch_campaigns_again_after_a_loss<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (here, there) = (short_curator(faulty, "latch-lost").await, curator(service, "latch-lost").await);
    let (mut first, mut second) = (LeaderLatch::new(&here, "office", "a"), LeaderLatch::new(&there, "office", "b"));
    first.start().expect("once");
    let token = first.await_leadership().await.expect("there is no other candidate");
    second.start().expect("once");
    in_use(there.client(), "office", 1, 1).await;
    faults.ignores_renewals.store(true, SeqCst);
    let next = second.await_leadership().await.expect("the leader is dead");
    assert!(token < next && !first.has_leadership());
    faults.ignores_renewals.store(false, SeqCst);
    in_use(there.client(), "office", 1, 1).await;
    second.close().await.expect("closed");
    let again = first.await_leadership().await.expect("its turn again");
    assert!(next < again);
    first.close().await.expect("closed");
    in_use(there.client(), "office", 0, 0).await;
}

/// A candidate that is refused tries again after a pause: while its namespace is full, and while only the cluster knows
/// that the session has ended.
async fn a_latch_pauses_after_a_refusal<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let curator = curator(faulty, "latch-refused").await;
    let session = curator.session().await.expect("opened").id();
    let full = Refusal::Quota { what: QuotaKind::Locks, limit: 1 };
    let ended = Refusal::SessionEnded { session, reason: EndReason::Expired, why: None };
    for refusal in [full, ended] {
        let (mut closed, mut leads) = (LeaderLatch::new(&curator, "a", "a"), LeaderLatch::new(&curator, "b", "b"));
        let (before, began) = (faults.acquires.load(SeqCst), Instant::now());
        faults.refuse(Some(refusal));
        closed.start().expect("once");
        leads.start().expect("once");
        until("both are refused", async || before + 2 <= faults.acquires.load(SeqCst)).await;
        assert!(!leads.await_within(SHORT * 4).await.expect("it tries again"));
        let tries = faults.acquires.load(SeqCst) - before;
        // If the machine stalls, more pauses have passed.
        let pauses = began.elapsed().as_millis() / u128::from(RETRY_MS_MAX);
        assert!(u128::from(tries) <= 2 * (1 + pauses), "{tries} tries of two candidates, with {pauses} pauses each");
        closed.close().await.expect("it holds nothing");
        faults.refuse(None);
        leads.await_leadership().await.expect("it is not refused any more");
        leads.close().await.expect("closed");
    }
}

/// The hold of a candidate is broken before the answer to its acquire arrives, many times in a row. Its session lives,
/// so the candidate queues again without a pause: with one, the acquires would take longer than this test waits.
async fn a_latch_queues_again_at_once_after_a_break<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let mut latch = LeaderLatch::new(&curator(faulty, "latch-broken").await, "office", "a");
    faults.answer(Some(Outcome::HoldEnded { reason: EndReason::Broken }));
    latch.start().expect("once");
    until("it queues again each time", async || 500 <= faults.acquires.load(SeqCst)).await;
    faults.answer(None);
    latch.await_leadership().await.expect("its hold is not broken any more");
    latch.close().await.expect("closed");
}

/// A leader that cannot reach the cluster does not claim that its leadership has ended. Its session ends it later.
async fn a_latch_reports_a_release_without_an_answer<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let builder = CuratorFramework::builder(faulty, namespace("latch-cut")).connection_timeout(OUTAGE);
    let here = builder.session_timeout(LONG).start().await.expect("started");
    let there = curator(service, "latch-cut").await;
    let mut latch = LeaderLatch::new(&here, "office", "a");
    latch.start().expect("once");
    latch.await_leadership().await.expect("there is no other candidate");
    cut(&faults);
    let unknown = latch.close().await.expect_err("there is no answer");
    assert!(matches!(unknown, CuratorError::Client(ClientError::Service(_))), "{unknown:?}");
    in_use(there.client(), "office", 1, 0).await;
    faults.ignores_renewals.store(false, SeqCst);
    faults.detached.store(false, SeqCst);
    in_use(there.client(), "office", 0, 0).await;
}
