//! A node whose disk is full stops with one line that states what failed, which file, and what to do.

use std::time::Duration;

use lockkeeper::limits::REASON_BYTES_MAX;

use crate::single_node::{SingleNode, config_of_one, free_addresses, program_after};

/// How long one acquire may take before the test checks whether the node has ended.
const POLL: Duration = Duration::from_secs(1);

/// When files cannot grow any more, the node stops with 70 and one line. Nothing that was acknowledged is lost: once
/// there is space again, the node knows the holder of each lock.
#[tokio::test]
async fn a_node_on_a_full_disk_says_so_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let [client, peer] = free_addresses();
    let config = config_of_one("full", &folder.path().join("n1"), &client, &peer);
    // A limit on the size of files simulates a full disk. With its signal ignored the write itself fails.
    let limited = program_after("trap '' XFSZ; ulimit -f 1600");
    let mut node = SingleNode::start_by(limited, folder.path(), "n1", &config, &client);
    let session = node.leads().await.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
    let why = "x".repeat(REASON_BYTES_MAX);
    let mut held = Vec::new();
    while node.ended().is_none() {
        let name = format!("n{}", held.len());
        if let Ok(Ok(guard)) = tokio::time::timeout(POLL, session.lock(&name).why(&why).acquire()).await {
            held.push((name, guard));
        }
    }
    assert_eq!(node.ended().and_then(|ended| ended.code()), Some(70), "{}", node.log());
    let log = node.log();
    let last = log.lines().last().expect("a last line");
    assert_eq!(log.matches("node 1 stopped: ").count(), 1, "one line states why the node stopped:\n{log}");
    assert!(last.contains("node 1 stopped: ") && last.contains("cannot ") && last.contains("free space"), "{last}");
    assert!(last.contains(folder.path().to_str().unwrap()), "{last}");

    let node = SingleNode::start(folder.path(), "n1", &config, &client);
    let again = node.leads().await;
    for (name, guard) in &held {
        let view = again.inspect(name).await.expect("inspected").value;
        assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [guard.token()], "{name}");
    }
}
