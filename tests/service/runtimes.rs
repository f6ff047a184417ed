//! Nodes that are called from several runtimes, some of which end.

use lockkeeper::model::Query;
use lockkeeper::service::{Freshness, LockService};
use lockkeeper::testing::Cluster;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Calls that a follower forwards share one connection. Many calls can need it before it is open, and it does not end
/// with the runtime of the first caller.
#[test]
fn forwarded_calls_share_a_connection() {
    let runtime = Runtime::new().expect("threads");
    let cluster = runtime.block_on(Cluster::start(3, None)).expect("a cluster");
    let follower = runtime.block_on(cluster.follower());
    for _ in 0..2 {
        let callers = Runtime::new().expect("threads");
        callers.block_on(async {
            let mut calls = JoinSet::new();
            for _ in 0..40 {
                let follower = follower.clone();
                calls.spawn(async move { follower.query(Query::Totals, Freshness::Linearizable).await });
            }
            while let Some(answered) = calls.join_next().await {
                answered.expect("no panic").expect("forwarded");
            }
        });
    }
    runtime.block_on(cluster.close());
}
