//! Nodes that share a process: several runtimes call them, some of which end, and each node has separate limits.

use lockkeeper::config::Config;
use lockkeeper::model::Query;
use lockkeeper::node::{Node, NodeOptions};
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

/// Two nodes of one process serve as many connections as their own configurations say.
#[tokio::test]
async fn nodes_of_one_process_have_their_own_limits() {
    let mut nodes = Vec::new();
    for http in [5, 9] {
        let text = format!(
            "cluster = \"c{http}\"\nnode = 1\ndata = \"none\"\n[limits]\nhttp_connections = {http}\n\
             [[member]]\nid = 1\nclient = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\n"
        );
        let config = Config::from_toml("n1.toml", &text, []).expect("a good config");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let options = NodeOptions { ephemeral: true, peer_listener: Some(listener), ..NodeOptions::default() };
        nodes.push(Node::open_with(config, options).await.expect("opened"));
    }
    let limits: Vec<_> = nodes.iter().map(|node| node.info().connections.http).collect();
    assert_eq!(limits, [5, 9]);
    for node in nodes {
        node.close().await;
    }
}
