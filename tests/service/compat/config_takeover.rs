//! When a config server's lock is overtaken: a change of leader, and the quarter of an hour to the millisecond on a
//! manual clock.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::compat::config_locks::{ConfigLocks, ConfigSettings, Era, WaitFor};
use lockkeeper::service::{LockService, Operation};
use lockkeeper::testing::{Cluster, ClusterOptions};

use super::config_locks::{TAKEOVER, process, refused, settings, silent};
use super::passes;
use super::probe::Probe;
use crate::suite::{LONG, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_cfg_07_r_cfg_16_a_change_of_leader_remote() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    cluster.leader().await;
    over_a_change_of_leader(&cluster, Client::connect(cluster.endpoints()).await.expect("connected")).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_cfg_07_r_cfg_16_a_change_of_leader_embedded() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    over_a_change_of_leader(&cluster, Client::new(cluster.leader().await.service())).await;
    cluster.close().await;
}

/// A change of leader restarts the count, and pings continue across it.
async fn over_a_change_of_leader<S: LockService>(cluster: &Cluster, client: Client<S>) {
    let period = Duration::from_millis(1_000);
    // The probe records every ping with the log time of its entry, so that no gap is hidden.
    let (probe, seen) = Probe::new(client.service().clone());
    let alive =
        ConfigLocks::start(Client::new(probe), process("alive"), ConfigSettings { ping_every: period, ..settings() });
    let (dead, waiter) = (silent(&client, "dead"), silent(&client, "waiter"));
    let change = async {
        dead.grab("balancer", dead.new_ts(), "dead", "round").await.expect("free");
        refused(&waiter, "balancer").await;
        passes(&client, TAKEOVER).await;
        let (leader, follower) = (cluster.leader().await, cluster.follower().await);
        while cluster.leader().await.id() == leader.id() {
            // The transfer is refused while the follower lacks log entries.
            client.service().operate(Operation::Transfer(follower.id())).await.ok();
        }
        refused(&waiter, "balancer").await;
        let overtaken = waiter.lock("balancer", "round", WaitFor::Duration(LONG)).await.expect("overtaken");
        overtaken.unlock().await.expect("held");
    };
    change.await;
    let pings = || seen.pings.lock().expect("not poisoned").clone();
    until("five pings", async || 5 <= pings().len()).await;
    let pings = pings();
    assert!(pings.windows(2).all(|two| two[1].ms_since(two[0]) <= 2 * 1_000), "{pings:?}");
    alive.shut_down().await.expect("stopped");
}

/// R-CFG-04 to the millisecond, with the original's quarter of an hour: refused at 0 and 14:59.999, overtaken at 15:00,
/// or with the legacy rule only after it. R-CFG-05: the first attempt can come long after the holder died, and starts a
/// new quarter. R-CFG-06: a ping in the last millisecond starts one as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_cfg_04_r_cfg_05_r_cfg_06_a_quarter_of_an_hour_to_the_millisecond() {
    let clock = Arc::new(ManualClock::new(4));
    let options = ClusterOptions { nodes: 1, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a node");
    let client = Client::new(cluster.leader().await.service()).clock(clock.clone());
    let manager = |name, era| {
        ConfigLocks::silent(client.clone(), process(name), ConfigSettings { era, ..ConfigSettings::default() })
    };
    let dead = manager("dead", Era::ReplicaSet);
    for name in ["balancer", "upgrade", "late"] {
        dead.grab(name, dead.new_ts(), "dead", "round").await.expect("free");
    }
    let slow = manager("slow", Era::ReplicaSet);
    slow.ping(slow.process()).await.expect("noted");
    slow.grab("slow", slow.new_ts(), "slow", "round").await.expect("free");
    let (waiter, legacy) = (manager("waiter", Era::ReplicaSet), manager("legacy", Era::Legacy));
    let late = manager("late", Era::ReplicaSet);
    let pass = async |ms| cluster.pass(&clock, Duration::from_millis(ms)).await.expect("passed");
    for ms in [0, 899_000, 999] {
        pass(ms).await;
        refused(&waiter, "balancer").await;
        refused(&legacy, "upgrade").await;
        if ms == 999 {
            slow.ping(slow.process()).await.expect("noted");
        }
        refused(&waiter, "slow").await;
    }
    pass(1).await;
    refused(&legacy, "upgrade").await;
    waiter.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("overtaken").unlock().await.expect("held");
    refused(&late, "late").await;
    pass(1).await;
    legacy
        .lock("upgrade", "round", WaitFor::SingleAttempt)
        .await
        .expect("after the quarter")
        .unlock()
        .await
        .expect("held");
    refused(&late, "late").await;
    pass(899_997).await;
    refused(&waiter, "slow").await;
    refused(&late, "late").await;
    pass(1).await;
    waiter.lock("slow", "round", WaitFor::SingleAttempt).await.expect("overtaken").unlock().await.expect("held");
    pass(1).await;
    late.lock("late", "round", WaitFor::SingleAttempt).await.expect("overtaken").unlock().await.expect("held");
    cluster.close().await;
}
