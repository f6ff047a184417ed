//! A voter whose data directory was lost: it has forgotten what it acknowledged, and must not act under its old id.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::model::Query;
use lockkeeper::service::{Freshness, LockService};

use crate::cluster::{Cluster, PATIENCE};

const LOOK: Duration = Duration::from_millis(20);

/// Waits until every node has applied what every node announced.
async fn await_announcements(cluster: &Cluster) {
    let started = Instant::now();
    let leader = cluster.await_leader().await;
    let announced = loop {
        let status = cluster.status_of(leader).await;
        if let Some(status) = status.as_ref().filter(|status| status.nodes.iter().all(|node| node.version.is_some())) {
            break status.applied;
        }
        assert!(started.elapsed() < PATIENCE, "not announced: {status:?}");
        tokio::time::sleep(LOOK).await;
    };
    for endpoint in cluster.endpoints() {
        let client = Client::connect([endpoint]).await.expect("connected");
        while client.service().query(Query::Totals, Freshness::Stale).await.expect("a stale read").index < announced {
            assert!(started.elapsed() < PATIENCE, "a node does not catch up");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Moves a stopped node's directory away, so that it starts with an empty one.
fn wipe(cluster: &Cluster, node: usize) -> PathBuf {
    let away = cluster.folder().join(format!("n{node}-away"));
    fs::rename(cluster.folder().join(format!("n{node}")), &away).expect("moved away");
    away
}

/// Waits until the wiped node has stopped by itself and said why and what to do.
async fn await_refusal(cluster: &mut Cluster, node: usize) {
    let started = Instant::now();
    let ended = loop {
        if let Some(ended) = cluster.ended(node) {
            break ended;
        }
        assert!(started.elapsed() < PATIENCE, "the wiped node {node} goes on");
        tokio::time::sleep(LOOK).await;
    };
    let said = cluster.log(node);
    assert_eq!(ended.code(), Some(70), "{said}");
    assert!(said.contains(&format!("node {node} stopped: node {node} has another disk")), "{said}");
    assert!(said.contains("give the new disk a new node id"), "{said}");
}

/// A follower that lost its directory is refused and stops; the other two go on, and with its old directory back it is a
/// healthy member again.
#[tokio::test]
async fn a_wiped_follower_stops_and_the_others_go_on() {
    let mut cluster = Cluster::start().await;
    await_announcements(&cluster).await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
    let held = session.lock("held").acquire().await.expect("free");
    let follower = cluster.a_follower().await;
    cluster.kill(follower);
    let away = wipe(&cluster, follower);
    cluster.spawn(follower);
    await_refusal(&mut cluster, follower).await;

    client.lock("on").acquire().await.expect("the others serve").release().await.expect("released");
    let view = client.inspect("held").await.expect("inspected").value;
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [held.token()]);

    let home = cluster.folder().join(format!("n{follower}"));
    fs::remove_dir_all(&home).expect("the new directory");
    fs::rename(away, home).expect("put back");
    cluster.await_end(follower);
    cluster.spawn(follower);
    let started = Instant::now();
    let leader = cluster.await_leader().await;
    while cluster.status_of(leader).await.is_none_or(|status| status.nodes[follower - 1].healthy != Some(true)) {
        assert!(started.elapsed() < PATIENCE, "{}", cluster.log(follower));
        tokio::time::sleep(LOOK).await;
    }
}

/// A node that lacks what was acknowledged asks a wiped voter, which has forgotten it too, for its vote. It must not get
/// it: nobody leads until a node comes back that knows.
#[tokio::test]
async fn a_wiped_voter_elects_nobody_who_lacks_what_was_acknowledged() {
    let mut cluster = Cluster::start().await;
    await_announcements(&cluster).await;
    let leader = cluster.await_leader().await;
    let [behind, wiped] = [1, 2, 3].into_iter().filter(|node| *node != leader).collect::<Vec<_>>()[..] else {
        panic!("three nodes")
    };
    cluster.kill(behind);
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
    let held = session.lock("held").acquire().await.expect("free");
    let token = held.token();
    cluster.kill(leader);
    cluster.kill(wiped);
    wipe(&cluster, wiped);
    cluster.spawn(behind);
    cluster.spawn(wiped);
    await_refusal(&mut cluster, wiped).await;
    cluster.await_end(wiped);

    cluster.spawn(leader);
    cluster.await_leader().await;
    let view = cluster.client().inspect("held").await.expect("inspected").value;
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token]);
}
