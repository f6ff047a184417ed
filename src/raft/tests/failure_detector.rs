//! Tests of the failure detector: three nodes whose election timeout is longer than any test, so that only the detector
//! can replace a leader.

use super::*;

/// Starts three nodes, of which node 1 leads, and waits until all follow it.
async fn start() -> Cluster {
    let timing = Timing { heartbeat_ms: 50, election_min_ms: 60_000, election_max_ms: 120_000 };
    let cluster = Cluster::start(|settings| settings.timing = timing).await;
    assert_eq!(cluster.leader().await, 1);
    replicate(&cluster, 1).await;
    cluster
}

/// Proposes an entry and waits until all nodes have applied it: then each follower has a stream of entries.
async fn replicate(cluster: &Cluster, stamp: u64) {
    cluster.propose(stamp).await;
    for node in 1..=3 {
        cluster.caught_up(node).await;
    }
}

fn terms(cluster: &Cluster) -> Vec<u64> {
    cluster.running.values().map(|running| running.consensus.watch().borrow().term).collect()
}

/// Waits until a node has dialled another one this often.
async fn dialled(cluster: &Cluster, from: u64, to: u64, times: u64) {
    soon(async {
        while cluster.lossy.dials(from, to) < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// A killed leader is replaced without the election timeout, in the next term. Of equal logs that of the higher id
/// counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_at_once() {
    let mut cluster = start().await;
    let before = terms(&cluster)[0];
    cluster.kill(1);
    assert_eq!(cluster.leader().await, 3);
    cluster.propose(2).await;
    assert_eq!(terms(&cluster), [before + 1; 2]);
}

/// A leader that was restarted at once does not lead, whether its followers find its port closed or another process
/// behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_leader_is_not_the_old_one() {
    let mut cluster = start().await;
    cluster.kill(1);
    cluster.restart(1).await;
    assert_ne!(cluster.leader().await, 1);
    cluster.propose(2).await;
}

/// The voter with the longest log stands, even if the other one has a higher id. The other one does not stand: it would
/// lose, and would take the vote of the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_longest_log_stands() {
    let mut cluster = start().await;
    let (mut leader, mut next) = (1, 2);
    // Which survivor acts first is a matter of luck, so there are several rounds.
    for round in 1..=8 {
        cluster.lossy.cut(Some(3));
        cluster.propose(2 * round).await;
        cluster.caught_up(next).await;
        let probes = cluster.lossy.dials(next, leader);
        cluster.kill(leader);
        if round % 2 == 0 {
            // In these rounds it is the one that is not partitioned, and its request waits for the other one.
            dialled(&cluster, next, leader, probes + 1).await;
        }
        cluster.lossy.cut(None);
        assert_eq!(cluster.leader().await, next);
        cluster.restart(leader).await;
        replicate(&cluster, 2 * round + 1).await;
        (leader, next) = (next, leader);
    }
}

/// A follower whose request to the other voter was lost probes the leader again, and asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_request_is_repeated() {
    let mut cluster = start().await;
    cluster.lossy.cut(Some(3));
    let [alone, partitioned] = [2, 3].map(|node| cluster.lossy.dials(node, 1));
    cluster.kill(1);
    dialled(&cluster, 3, 1, partitioned + 1).await;
    dialled(&cluster, 2, 1, alone + 2).await;
    cluster.lossy.cut(None);
    assert_eq!(cluster.leader().await, 3);
}

/// A leader whose connections are reset answers the probes, and stays the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_leader_stays() {
    let cluster = start().await;
    let before = terms(&cluster);
    for round in 1..=5 {
        let dials = [2, 3].map(|node| (node, cluster.lossy.dials(node, 1)));
        cluster.lossy.reset();
        for (node, dials) in dials {
            dialled(&cluster, node, 1, dials + 1).await;
        }
        replicate(&cluster, 1 + round).await;
    }
    assert_eq!(terms(&cluster), before);
}

/// One follower that cannot dial the leader, and whose stream ended, does not depose it: the other voter finds it
/// alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wrong_observer_deposes_no_leader() {
    let cluster = start().await;
    let before = terms(&cluster);
    cluster.lossy.refuse(Some((2, 1)));
    for round in 1..=5 {
        let dials = cluster.lossy.dials(3, 1);
        cluster.lossy.reset();
        // Node 3 dials for itself, and again for node 2.
        dialled(&cluster, 3, 1, dials + 2).await;
        replicate(&cluster, 1 + round).await;
    }
    assert_eq!(terms(&cluster), before);
}

/// Silence is no proof: both followers dial the leader and give up, and no node requests votes before the election
/// timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_deposes_no_leader() {
    let cluster = start().await;
    let before = terms(&cluster);
    let mut hanging = cluster.lossy.hanging();
    cluster.lossy.cut(Some(1));
    cluster.lossy.reset();
    soon(hanging.wait_for(|hanging| *hanging == 2)).await.unwrap();
    soon(hanging.wait_for(|hanging| *hanging == 0)).await.unwrap();
    cluster.lossy.cut(None);
    cluster.propose(2).await;
    assert_eq!(terms(&cluster), before);
}
