//! A node that runs out of file descriptors: what still works, what is logged, and how it recovers.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::limits;

use crate::cluster::PATIENCE;
use crate::http::get;
use crate::ports::free_ports;
use crate::single_node::SingleNode;

/// The hard limit of descriptors in this test: enough for the files of a node.
const DESCRIPTORS: usize = 256;

/// Starts a single node with this hard limit and a soft limit of a quarter of it. Returns the node and its HTTP
/// address.
fn limited(folder: &std::path::Path) -> (SingleNode, String) {
    let [client, peer, http] = free_ports().map(|port| format!("127.0.0.1:{port}"));
    let config = format!(
        "cluster = \"few\"\nnode = 1\ndata = {:?}\n[listen]\nclient = \"{client}\"\npeer = \"{peer}\"\nhttp = \"{http}\"\n\
         [[member]]\nid = 1\nclient = \"{client}\"\npeer = \"{peer}\"\n[timing]\nprofile = \"fast\"\n",
        folder.join("data")
    );
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {DESCRIPTORS}; ulimit -Sn {}; exec \"$0\" \"$@\"", DESCRIPTORS / 4);
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_lockkeeper")]).env("LOCKKEEPER_LOG", "lockkeeper=debug");
    (SingleNode::start_by(shell, folder, "few", &config, &client), http)
}

/// A node raises its soft limit of descriptors at the start, and keeps some of them for its own files, because it stops
/// if it cannot open those. While too many connections arrive it logs that once, retries with pauses and serves its
/// open connections. It accepts again once some are closed.
#[tokio::test]
async fn a_node_without_descriptors_keeps_serving() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, http) = limited(folder.path());
    let known = node.leads().await;
    known.totals().await.expect("it is connected");
    let raised = format!("from={} to={DESCRIPTORS}", DESCRIPTORS / 4);
    assert!(node.log().contains(&raised), "the soft limit is not raised:\n{}", node.log());

    let begun = Instant::now();
    let silent: Vec<_> =
        (0..DESCRIPTORS).map(|_| TcpStream::connect(&node.client).expect("in the kernel's queue")).collect();
    while !node.log().contains("cannot accept connections") {
        assert!(begun.elapsed() < PATIENCE, "descriptors are left:\n{}", node.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.process())).expect("the node lives").count();
    assert!(open + DESCRIPTORS / 16 <= DESCRIPTORS, "{open} of {DESCRIPTORS} are open: none is left for its files");
    known.lock("a").acquire().await.expect("an open connection works").release().await.expect("released");

    drop(silent);
    let late = Client::connect([&node.client]).await.expect("an address").request_wait(PATIENCE);
    late.lock("a").acquire().await.expect("a new connection works").release().await.expect("released");
    let metrics = get(&http, "/metrics");
    let failures = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lockkeeper_accept_failures_total{port=\"client\"} "))
        .expect("counted");
    let failures: u128 = failures.parse().expect("a number");
    let pauses = begun.elapsed().as_millis() / u128::from(limits::ACCEPT_PAUSE_MS) + 1;
    assert!((1..=pauses).contains(&failures), "{failures} tries in {pauses} pauses");
    let lines = node.log().matches("cannot accept connections").count();
    assert_eq!(lines, 1, "one line for one outage:\n{}", node.log());
}
