//! `status` shows what the leader knows, whichever node is asked. Without a leader it shows unknown values.

use std::process::Output;
use std::time::{Duration, Instant};

use lockkeeper::limits::{FEATURE_LEVEL, FEATURE_LEVEL_MIN};
use lockkeeper::service::Status;
use serde_json::Value;

use crate::cluster::Cluster;

/// Runs `status` against this node alone.
fn run_status(cluster: &Cluster, node: usize, arguments: &[&str]) -> Output {
    let endpoint = cluster.endpoints().swap_remove(node - 1);
    cluster.command(&[&["status", "--endpoints", &endpoint], arguments].concat()).output().expect("ran")
}

fn health(status: &Status, node: usize) -> Option<bool> {
    status.nodes[node - 1].healthy
}

/// A follower reports a dead node as unhealthy, as the leader does. Without a quorum it reports the others as unknown
/// and names no leader, and the command prints the status and exits with 69.
#[tokio::test]
async fn status_is_the_leaders_and_unknown_without_one() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let [queried, dead] = [1, 2, 3].into_iter().filter(|node| *node != leader).collect::<Vec<_>>()[..] else {
        panic!("three nodes")
    };
    let all_well = |status: &Status| status.nodes.iter().all(|node| node.healthy == Some(true));
    cluster.status_when(queried, all_well).await;

    cluster.kill(dead);
    let status = cluster.status_when(queried, |status| health(status, dead) == Some(false)).await;
    assert_eq!((status.node, status.leader), (queried as u64, Some(leader as u64)));
    assert_eq!((health(&status, queried), health(&status, leader)), (Some(true), Some(true)));

    cluster.kill(leader);
    let status = cluster.status_when(queried, |status| status.leader.is_none()).await;
    assert_eq!((health(&status, queried), health(&status, leader), health(&status, dead)), (Some(true), None, None));

    let shown = run_status(&cluster, queried, &[]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(69), "{text}");
    assert_eq!(text.matches("unknown").count(), 2, "{text}");
    let shown = run_status(&cluster, queried, &["--json"]);
    let object: Value = serde_json::from_slice(&shown.stdout).expect("an object");
    assert_eq!((shown.status.code(), &object["leader"]), (Some(69), &Value::Null));

    // Neither command asks for longer than it was allowed to.
    let ended = |arguments: &[&str], longest: u64| {
        let begun = Instant::now();
        let code = cluster.command(arguments).output().expect("ran").status.code();
        assert!(begun.elapsed() < Duration::from_secs(longest), "{arguments:?} took {:?}", begun.elapsed());
        code
    };
    assert_eq!(ended(&["--timeout", "2s", "member", "ls"], 10), Some(69));
    assert_eq!(ended(&["--timeout", "30s", "wait", "a", "-w", "1s"], 20), Some(69));
    assert_eq!(object["nodes"][dead - 1]["healthy"], Value::Bool(false));
    let error: Value = serde_json::from_slice(&shown.stderr).expect("an error");
    assert_eq!((&error["error"], &error["exit"]), (&"no-leader".into(), &69.into()));
}

/// Every node announces its version and its HTTP address, and all nodes show them. The feature level can be raised at
/// most to the level that every node supports.
#[tokio::test]
async fn nodes_announce_themselves_and_bound_the_feature_level() {
    let cluster = Cluster::start().await;
    let follower = cluster.a_follower().await;
    let status = cluster.status_when(follower, |status| status.nodes.iter().all(|node| node.version.is_some())).await;
    for (node, shown) in (1..).zip(&status.nodes) {
        assert_eq!((&shown.http, shown.features), (&cluster.http(node), Some(FEATURE_LEVEL)));
        assert_eq!(shown.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
    assert_eq!(status.features, FEATURE_LEVEL_MIN);

    let endpoint = cluster.endpoints().swap_remove(follower - 1);
    let features = |arguments: &[&str]| {
        let arguments = [&["features", "--json", "--endpoints", &endpoint], arguments].concat();
        cluster.command(&arguments).output().expect("ran")
    };
    let shown = features(&["raise", &FEATURE_LEVEL.to_string()]);
    let object: Value = serde_json::from_slice(&shown.stdout).expect("an object");
    assert_eq!((&object["active"], &object["supported"]), (&FEATURE_LEVEL.into(), &FEATURE_LEVEL.into()));
    let refused = features(&["raise", &(FEATURE_LEVEL + 1).to_string()]);
    let error: Value = serde_json::from_slice(&refused.stderr).expect("an error");
    assert_eq!((refused.status.code(), &error["error"]), (Some(65), &"feature-level".into()));
    assert!(error["detail"].as_str().is_some_and(|detail| detail.contains("node 1")), "{error}");
}
