//! Nodes that share a process: several runtimes call them, some of which end, and each node has separate limits.

use lockkeeper::config::Config;
use lockkeeper::model::{Command, Handle, LockKey, LockName, Namespace, Query};
use lockkeeper::node::{Node, NodeOptions};
use lockkeeper::service::{Call, Freshness, LockService, ServiceError};
use lockkeeper::testing::Cluster;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::suite::PATIENT;

/// Calls that a follower forwards share one connection. Many calls can need it before it is open, and it does not end
/// with the runtime of the first caller. Only an election may fail a call.
#[test]
fn forwarded_calls_share_a_connection() {
    let runtime = Runtime::new().expect("threads");
    let cluster = runtime.block_on(Cluster::start(3, None)).expect("a cluster");
    let follower = runtime.block_on(cluster.follower());
    let term = || runtime.block_on(async { cluster.leader().await.status().await.expect("a leader").term });
    let mut began = term();
    while let Some(error) = (0..2).find_map(|_| first_error(&follower)) {
        let now = term();
        assert!(began < now, "without an election: {error:?}");
        began = now;
    }
    runtime.block_on(cluster.close());
}

/// Returns the first error of 40 calls from a separate runtime.
fn first_error(follower: &Node) -> Option<ServiceError> {
    Runtime::new().expect("threads").block_on(async {
        let mut calls = JoinSet::new();
        for _ in 0..40 {
            let follower = follower.clone();
            calls.spawn(async move { follower.query(Query::Totals, Freshness::Linearizable).await });
        }
        calls.join_all().await.into_iter().find_map(Result::err)
    })
}

/// A runtime with one thread that opens a node and then does something else delays no caller of another runtime.
#[test]
fn an_idle_runtime_delays_no_reply() {
    let opener = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cluster = opener.block_on(Cluster::start(1, None)).expect("a cluster");
    let leader = opener.block_on(cluster.leader());
    let drop_lease = || {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("free").expect("legal") };
        Call::new(Command::DropLease { lock, handle: Handle::from_random(1) })
    };
    let answered = Runtime::new().expect("threads").block_on(async {
        let mut calls = JoinSet::new();
        // Many of them share large entries.
        for _ in 0..1_000 {
            let (leader, call) = (leader.clone(), drop_lease());
            calls.spawn(async move { leader.submit(call).await });
        }
        timeout(PATIENT, calls.join_all()).await
    });
    assert!(answered.is_ok(), "callers wait for a runtime that does nothing");
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
