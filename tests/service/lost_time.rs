//! Time that a leader's clock lost: what it does about it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::testing::{Cluster, ClusterOptions};

use crate::suite::{LOOK, PATIENT};

/// A leader that stood still for longer than two seconds of a minute, while something had an end, hands leadership over;
/// sessions do not pay for it: of the pause no more counts than the cap of log time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_time_hands_over() {
    let clock = Arc::new(ManualClock::new(11));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let session = client.session().open().await.expect("opened");
    let before = client.status().await.expect("a status").log_time;
    clock.advance(Duration::from_secs(5));
    let hands_over = async {
        while cluster.leader().await.id() == leader.id() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENT, hands_over).await.expect("another node leads");
    let after = client.status().await.expect("a status").log_time;
    assert!(after.ms_since(before) <= 1_000, "{before:?} to {after:?}");
    assert!(client.all_sessions().await.expect("listed").value.iter().any(|row| row.session == session.id()));
    cluster.close().await;
}
