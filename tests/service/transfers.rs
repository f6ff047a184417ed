//! Transfers of leadership while clients work.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::model::EventKind;
use lockkeeper::service::{ErrorCode, LockService, MemberChange, Operation};
use lockkeeper::testing::{Cluster, ClusterOptions};

use crate::suite::until;

/// A leader serves its callers while it waits for a node that does not answer to be ready for a transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_served_while_a_transfer_waits_for_its_target() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let target = cluster.follower().await;
    target.close().await;
    let service = leader.service();
    until("the leader notices that the node has stopped", async || {
        let nodes = service.status().await.expect("a status").nodes;
        nodes.iter().any(|node| node.id == target.id() && node.healthy == Some(false))
    })
    .await;

    // A transfer that pauses the queue at once serves no call before it ends. A busy machine may delay a few calls.
    let mut served_meanwhile = false;
    for _ in 0..20 {
        let mut transfer = pin!(service.operate(Operation::Transfer(target.id())));
        let mut served = pin!(async {
            let guard = client.lock("nightly").acquire().await.expect("free");
            guard.release().await.expect("released");
        });
        let refused = tokio::select! {
            biased;
            ended = &mut transfer => {
                served.await;
                ended
            }
            () = &mut served => {
                served_meanwhile = true;
                transfer.await
            }
        };
        let refused = refused.expect_err("the target has stopped");
        assert_eq!(refused.code(), ErrorCode::Invalid, "{refused}");
        if served_meanwhile {
            break;
        }
    }
    assert!(served_meanwhile, "no call was served during a transfer");
    cluster.close().await;
}

/// An idle cluster applies nothing for hours. When its leader transfers leadership, the event says how long no node
/// led, and not how long the cluster was idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_time_is_no_time_without_a_leader() {
    let (clock, idle) = (Arc::new(ManualClock::new(17)), Duration::from_secs(8 * 3_600));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let leader = cluster.leader().await;
    let mut watch = Client::new(leader.service()).watch("", None).await.expect("watching");
    clock.advance(idle);
    let target = cluster.follower().await;
    leader.operate(Operation::Transfer(target.id())).await.expect("transferred");
    let gap_ms = loop {
        if let EventKind::LeaderlessGap { gap_ms } = watch.next().await.expect("an event").kind {
            break gap_ms;
        }
    };
    assert!(Duration::from_millis(gap_ms) < idle, "{gap_ms} ms without a leader");
    cluster.close().await;
}

/// A transfer to a learner is refused with the reason and the next step: no wait gives it a vote.
#[tokio::test]
async fn a_transfer_to_a_learner_says_how_it_gets_a_vote() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let (client, peer) = ("127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned());
    let add = MemberChange::Add { node: 2, client, peer };
    leader.operate(Operation::ChangeMembers(add)).await.expect("added");
    let mut views = leader.views();
    drop(views.wait_for(|view| view.members.contains_key(&2)).await.expect("the node runs"));
    let refused = leader.operate(Operation::Transfer(2)).await.expect_err("a learner").to_string();
    assert!(refused.contains("a learner") && refused.contains("lockkeeper member promote"), "{refused}");
}
