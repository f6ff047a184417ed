//! A node whose state differs from its log is detected and stops, while the others serve.

use std::time::{Duration, Instant};

use lockkeeper::faults::Fault;
use lockkeeper::service::{LockService, Operation};

use crate::cluster::{Cluster, PATIENCE};
use crate::wait::wait_until;

/// Waits until the node has stopped, and checks the last line of its log.
async fn await_stop(cluster: &mut Cluster, node: usize) {
    assert_eq!(cluster.await_end(node).await, Some(70));
    let log = cluster.log(node);
    let line = log.lines().rev().find(|line| line.contains(&format!("node {node} stopped"))).expect("a last line");
    assert!(line.contains("the state here differs from that of most voters after log entry"), "{line}");
    assert!(line.contains("lockkeeper member add"), "{line}");
}

/// A follower with a different state stops; after its state is rebuilt it is a member again. A leader with a different
/// state stops as well, and the correct nodes do not. A holder keeps its lock meanwhile.
#[tokio::test]
async fn the_node_whose_state_differs_stops_and_the_others_serve() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(5)).open().await.expect("a session");
    let held = session.lock("held").acquire().await.expect("free");
    let follower = cluster.a_follower().await;
    assert_eq!(cluster.stop(follower), Some(0));
    cluster.spawn_faulty(follower, Fault::OtherState);
    await_stop(&mut cluster, follower).await;
    client.lock("on").acquire().await.expect("the others serve").release().await.expect("released");
    // The node's log is correct, so without the mirror the node rebuilds the correct state.
    std::fs::remove_dir_all(cluster.folder().join(format!("n{follower}")).join("state")).expect("a mirror");
    cluster.spawn(follower);

    let wrong = cluster.await_leader().await;
    assert_eq!(cluster.stop(wrong), Some(0));
    cluster.spawn_faulty(wrong, Fault::OtherState);
    // The node may stop before it leads.
    wait_until("the node leads or stops", async || {
        cluster.ended(wrong).is_some() || client.service().operate(Operation::Transfer(wrong as u64)).await.is_ok()
    })
    .await;
    await_stop(&mut cluster, wrong).await;
    client.lock("on").acquire().await.expect("the others serve").release().await.expect("released");
    let view = client.inspect("held").await.expect("inspected").value;
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [held.token()]);
    let stopped: Vec<_> = (1..=3).filter(|node| cluster.ended(*node).is_some()).collect();
    assert_eq!(stopped, Vec::<usize>::new(), "a correct node stopped as well");
}

/// Two voters with different states have no majority. Both continue to run, and `doctor` reports the difference until
/// the third voter decides it.
#[tokio::test]
async fn different_states_without_a_majority_are_reported() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    // Without calls there are no entries, and so no digests.
    let call = async || client.lock("on").acquire().await.expect("a quorum").release().await.expect("released");
    let leader = cluster.await_leader().await;
    let [faulty, absent] = [1, 2].map(|after| (leader - 1 + after) % 3 + 1);
    for node in [faulty, absent] {
        assert_eq!(cluster.stop(node), Some(0));
    }
    cluster.spawn_faulty(faulty, Fault::OtherState);
    let reports = |cluster: &Cluster| {
        let shown = cluster.command(&["doctor"]).output().expect("ran");
        String::from_utf8_lossy(&shown.stdout).contains("FAIL  states        the states of the voters differ")
    };
    let started = Instant::now();
    while !reports(&cluster) {
        assert!(started.elapsed() < PATIENCE, "the difference is not reported");
        call().await;
    }
    assert_eq!([faulty, leader].map(|node| cluster.ended(node).is_some()), [false; 2]);
    cluster.spawn(absent);
    while cluster.ended(faulty).is_none() {
        assert!(started.elapsed() < 2 * PATIENCE, "the node with a different state still runs");
        call().await;
    }
    await_stop(&mut cluster, faulty).await;
    while reports(&cluster) {
        assert!(started.elapsed() < 3 * PATIENCE, "the difference is still reported");
    }
}
