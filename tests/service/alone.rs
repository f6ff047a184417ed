//! Answers of a leader without a quorum.

use lockkeeper::model::{Claim, LockKey, LockName, Namespace, RequestId};
use lockkeeper::service::{ClaimRef, LockService, ServiceError};
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
