//! Answers of a node without a quorum.

use futures_util::future::join_all;
use lockkeeper::model::{Claim, LockKey, LockName, Namespace, Query, RenewalTarget, RequestId, SessionId};
use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use lockkeeper::service::{
    ClaimRef, Freshness, LockService, NotSent, Proof, RenewalCall, Scope, ServiceError, Subscription,
};
use lockkeeper::testing::Cluster;

/// A leader without a quorum does not report a claim as unknown, because a new leader may have granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_calls_no_claim_unknown() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let session = lockkeeper::client::Client::new(leader.service()).session().open().await.expect("opened");
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("granted-elsewhere").expect("legal") };
    let claim = ClaimRef { lock, claim: Claim::Request(RequestId { session: session.id(), number: 77 }) };
    let known = leader.wait_outcome(claim.clone()).await;
    assert!(matches!(known, Ok(_) | Err(ServiceError::Refused(_))), "a quorum confirms it: {known:?}");
    for follower in cluster.nodes().iter().filter(|node| node.id() != leader.id()) {
        follower.close().await;
    }
    let alone = leader.wait_outcome(claim).await;
    assert!(matches!(alone, Err(ServiceError::NotSent { .. } | ServiceError::Unknown { .. })), "{alone:?}");
}

/// A leader without a quorum answers no linearizable read, and refuses no renewal of a session that it does not know: a
/// new leader may have decided more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_answers_no_read_and_refuses_no_renewal() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("granted-elsewhere").expect("legal") };
    let target = RenewalTarget::Session(SessionId::new(0, 99));
    let calls = || {
        let read = leader.query(Query::Inspect { lock: lock.clone() }, Freshness::Linearizable);
        let renewal = RenewalCall { target: target.clone(), proof: Proof::Trusted, attempt: 1 };
        async { tokio::join!(read, leader.renew(vec![renewal])) }
    };
    let (read, renewed) = calls().await;
    assert!(read.is_ok() && renewed.is_ok(), "a quorum confirms both: {read:?}, {renewed:?}");
    let followers = cluster.nodes().iter().filter(|node| node.id() != leader.id());
    join_all(followers.map(|follower| follower.close())).await;
    let (read, renewed) = calls().await;
    let alone = |error: Option<&ServiceError>| {
        matches!(error, Some(ServiceError::NotSent { .. } | ServiceError::Unknown { .. }))
    };
    assert!(alone(read.as_ref().err()), "{read:?}");
    assert!(alone(renewed.as_ref().err()), "{renewed:?}");
}

/// A node that knows of no leader for long ends its watches, whether it led or not: it learns of no event, and another
/// node may have a leader. A watch that begins there meanwhile ends likewise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_leader_ends_its_watches() {
    for led in [true, false] {
        let cluster = Cluster::start(3, None).await.expect("a cluster");
        let leader = cluster.leader().await;
        let alone = if led { leader } else { cluster.follower().await };
        let watch = || async {
            let scope = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
            let watched = alone.subscribe(Subscription { scope, after: None, cluster_id: None }).await;
            watched.expect("subscribed")
        };
        let mut before = watch().await;
        for other in cluster.nodes().iter().filter(|node| node.id() != alone.id()) {
            other.close().await;
        }
        let mut meanwhile = watch().await;
        // Watches of one session end, too. Only the node's own streams of sessions continue.
        let endpoint = format!("http://{}", cluster.endpoints()[alone.id() as usize - 1]);
        let mut locks = LocksClient::connect(endpoint).await.expect("connected");
        for scope in [pb::watch_request::Scope::SessionEnd(7), pb::watch_request::Scope::Holds(7)] {
            let request = pb::WatchRequest { scope: Some(scope), ..Default::default() };
            let mut events = locks.watch(request).await.expect("subscribed").into_inner();
            let end = events.message().await.expect_err("no event");
            assert_eq!(end.metadata().get("lockkeeper-error").expect("a code"), "no-leader", "{end}");
        }
        for events in [&mut before, &mut meanwhile] {
            let end = loop {
                match events.next().await {
                    Ok(_) => {}
                    Err(end) => break end,
                }
            };
            assert!(matches!(end, ServiceError::NotSent { why: NotSent::NoLeader, .. }), "led: {led}: {end}");
        }
    }
}
