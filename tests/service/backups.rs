//! Backups of a node: there are only a few in a minute.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::ManualClock;
use lockkeeper::node::Node;
use lockkeeper::service::{ErrorCode, LockService, NotSent, ServiceError};
use lockkeeper::testing::{Cluster, ClusterOptions};

use crate::suite::POLL;

/// Makes a backup completely. Waits until the node has ended the one before.
async fn backup(node: &Node) -> Result<usize, ServiceError> {
    let mut download = loop {
        match node.backup().await {
            Err(ServiceError::NotSent { why: NotSent::LimitReached { limit, .. }, .. }) if limit.contains("one at") => {
                tokio::time::sleep(POLL).await;
            }
            begun => break begun?,
        }
    };
    let mut bytes = 0;
    while let Some(part) = download.next().await? {
        bytes += part.len();
    }
    Ok(bytes)
}

/// A fourth backup of a node within a minute is refused with a pause, and succeeds after it. A caller that disconnects
/// uses up none, and another node makes its own.
#[tokio::test]
async fn a_node_makes_few_backups_in_a_minute() {
    let clock = Arc::new(ManualClock::new(7));
    let options = ClusterOptions { clock: Some(Arc::clone(&clock) as _), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for _ in 0..3 {
        assert!(0 < backup(&leader).await.expect("one of the first"));
        clock.advance(Duration::from_secs(10));
    }
    let refused = backup(&leader).await.expect_err("the fourth");
    assert_eq!((refused.code(), refused.pause_ms()), (ErrorCode::Overloaded, 30_000), "{refused}");
    let text = "the node has made 3 backups in the last minute, its limit; name another node with --endpoints; try again \
                in 30s";
    assert!(refused.to_string().ends_with(text), "{refused}");
    backup(&follower).await.expect("another node");
    clock.advance(Duration::from_secs(30));
    backup(&leader).await.expect("after the pause");
}
