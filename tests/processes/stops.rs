//! Last words: a node that must not run with what its config says ends with 70 and one line that says what, where and what
//! to do next.

use std::fs;
use std::process::Command;

use crate::cluster::Cluster;

/// What a node says last that is started with this config, which it must refuse.
fn last_words(cluster: &Cluster, config: &str) -> String {
    let path = cluster.folder().join("wrong.toml");
    fs::write(&path, config).expect("a config");
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(["serve", "--config"]).arg(path).output();
    let output = output.expect("ran");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(70), "{said}");
    said.lines().last().expect("last words").to_owned()
}

/// Another timing than the cluster's, a directory that is in use, and one of another node.
#[tokio::test]
async fn a_node_that_must_not_run_says_why_in_one_line() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let node = cluster.a_follower().await;
    assert_eq!(cluster.stop(node), Some(0));
    let config = fs::read_to_string(cluster.folder().join(format!("n{node}.toml"))).expect("its config");

    let line = last_words(&cluster, &config.replace("\"fast\"", "\"wan\""));
    assert!(line.contains("founded with the timing 30/90/120 ms") && line.contains("set [timing]"), "{line}");
    let data = |of: usize| format!("data = {:?}", cluster.folder().join(format!("n{of}")));
    let line = last_words(&cluster, &config.replace(&data(node), &data(leader)));
    assert!(line.contains("another process holds") && line.contains("directory of its own"), "{line}");
    let other = (1..=3).find(|other| ![node, leader].contains(other)).expect("three nodes");
    let of_other = config.replace(&data(node), &data(other));
    assert_eq!(cluster.stop(other), Some(0));
    let line = last_words(&cluster, &of_other);
    let found = format!("belongs to node {other} of cluster test");
    assert!(line.contains(&found) && line.contains("correct the config"), "{line}");
}
