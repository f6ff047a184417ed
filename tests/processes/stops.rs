//! A node that must not run with its config exits with 70 and one line that states what is wrong, where, and what to
//! do.

use std::fs;
use std::process::Command;

use crate::cluster::Cluster;

/// Starts a node with a config that it must refuse. Returns the last line that it prints.
fn last_line(cluster: &Cluster, config: &str) -> String {
    let path = cluster.folder().join("wrong.toml");
    fs::write(&path, config).expect("a config");
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(["serve", "--config"]).arg(path).output();
    let output = output.expect("ran");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(70), "{stderr}");
    stderr.lines().last().expect("a last line").to_owned()
}

/// The config has a timing that differs from the cluster's, a data directory in use, or the directory of another node.
#[tokio::test]
async fn a_node_that_must_not_run_says_why_in_one_line() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let node = cluster.a_follower().await;
    assert_eq!(cluster.stop(node), Some(0));
    let config = fs::read_to_string(cluster.folder().join(format!("n{node}.toml"))).expect("its config");

    let line = last_line(&cluster, &config.replace("\"fast\"", "\"wan\""));
    assert!(line.contains("founded with the timing 30/90/120 ms") && line.contains("set [timing]"), "{line}");
    let data = |of: usize| format!("data = {:?}", cluster.folder().join(format!("n{of}")));
    let line = last_line(&cluster, &config.replace(&data(node), &data(leader)));
    assert!(line.contains("another process holds") && line.contains("another directory"), "{line}");
    let other = (1..=3).find(|other| ![node, leader].contains(other)).expect("three nodes");
    let of_other = config.replace(&data(node), &data(other));
    assert_eq!(cluster.stop(other), Some(0));
    let line = last_line(&cluster, &of_other);
    let found = format!("belongs to node {other} of cluster test");
    assert!(line.contains(&found) && line.contains("correct the config"), "{line}");
}
