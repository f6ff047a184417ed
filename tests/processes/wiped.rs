//! A voter that loses its data directory has lost its acknowledged entries and its vote, and must not act under its old
//! id.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::model::Query;
use lockkeeper::service::{Freshness, LockService, Status};

use crate::cluster::Cluster;
use crate::wait::wait_until;

/// Waits until every node has applied the announcements of all nodes.
async fn await_announcements(cluster: &Cluster) {
    let leader = cluster.await_leader().await;
    let all_announced = |status: &Status| status.nodes.iter().all(|node| node.version.is_some());
    let announced = cluster.status_when(leader, all_announced).await.applied;
    for endpoint in cluster.endpoints() {
        let client = Client::connect([endpoint]).await.expect("connected");
        let applied =
            async || client.service().query(Query::Totals, Freshness::Stale).await.expect("a stale read").index;
        wait_until("the node catches up", async || announced <= applied().await).await;
    }
}

/// Moves the directory of a stopped node away, so that the node starts with an empty one. Returns where it was moved
/// to.
fn wipe(cluster: &Cluster, node: usize) -> PathBuf {
    let away = cluster.folder().join(format!("n{node}-away"));
    fs::rename(cluster.folder().join(format!("n{node}")), &away).expect("moved away");
    away
}

/// Waits until the wiped node has stopped, with a line that states why and what to do.
async fn await_refusal(cluster: &mut Cluster, node: usize) {
    let code = cluster.await_end(node).await;
    let log = cluster.log(node);
    assert_eq!(code, Some(70), "{log}");
    assert!(log.contains(&format!("node {node} stopped: node {node} has another disk")), "{log}");
    assert!(log.contains("give the new disk a new node id"), "{log}");
}

/// A follower that lost its directory is refused and stops, and the other two keep serving. With its old directory it
/// is a healthy member again.
#[tokio::test]
async fn a_wiped_follower_stops_and_the_others_serve() {
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
    fs::rename(away, home).expect("restored");
    cluster.spawn(follower);
    let leader = cluster.await_leader().await;
    cluster.status_when(leader, |status| status.nodes[follower - 1].healthy == Some(true)).await;
}

/// A node that lacks an acknowledged entry asks a wiped voter, which lost that entry, for its vote. It must not get the
/// vote: there is no leader until a node with the entry is back.
#[tokio::test]
async fn a_wiped_voter_elects_no_node_without_acknowledged_entries() {
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

    cluster.spawn(leader);
    cluster.await_leader().await;
    let view = cluster.client().inspect("held").await.expect("inspected").value;
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token]);
}
