//! The HTTP port of a node: health, readiness and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::cluster::{Cluster, PATIENCE};

/// The documented metrics. A node that has worked exports all of them.
const DOCUMENTED: &[&str] = &[
    "lockkeeper_grants_total",
    "lockkeeper_waits_total",
    "lockkeeper_expiries_total",
    "lockkeeper_wait_seconds",
    "lockkeeper_hold_seconds",
    "lockkeeper_sessions",
    "lockkeeper_waiters",
    "lockkeeper_deadlock_checks_skipped_total",
    "lockkeeper_leader_changes_total",
    "lockkeeper_term",
    "lockkeeper_fsync_seconds",
    "lockkeeper_commit_seconds",
    "lockkeeper_log_time_uncounted_seconds",
    "lockkeeper_wal_bytes",
    "lockkeeper_snapshot_bytes",
    "lockkeeper_tasks",
];

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the port answers");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

/// A node reports its health and readiness: it is ready while it has a quorum, and not ready without one. Its metrics
/// contain every documented name, each with a help text.
#[tokio::test]
async fn health_readiness_and_metrics_describe_the_node() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    client.lock("a").acquire().await.expect("free").release().await.expect("released");
    let leader = cluster.await_leader().await;
    let address = cluster.http(leader);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    let missing: Vec<_> = DOCUMENTED.iter().filter(|name| !metrics.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in\n{metrics}");
    let families: Vec<_> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let unexplained: Vec<_> =
        families.iter().filter(|family| !metrics.contains(&format!("# HELP {family} "))).collect();
    assert!(DOCUMENTED.len() <= families.len() && unexplained.is_empty(), "no HELP for {unexplained:?} in\n{metrics}");
    for node in (1..=3).filter(|node| *node != leader) {
        cluster.kill(node);
    }
    // A probe may still get the answer of the one before.
    let killed = std::time::Instant::now();
    while !get(&address, "/readyz").starts_with("HTTP/1.1 503") {
        assert!(killed.elapsed() < PATIENCE, "ready without a quorum");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"), "the process itself is healthy");
}
