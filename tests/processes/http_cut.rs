//! A `hold` whose client is partitioned from its node: no packet arrives any more, and nothing closes the connection.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE, Place};
use crate::crash::sandbox;
use crate::http::HttpPort;

/// The address of the nodes, next to the client's namespace `c`.
const NODES: &str = "10.98.0.1";
/// The address in the namespace `c`.
const APART: &str = "10.98.0.2";
const LINK: &str = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up; ip netns add c
    ip link add v0 type veth peer name eth0 netns c; ip addr add 10.98.0.1/24 dev v0; ip link set v0 up
    ip -n c link set lo up; ip -n c addr add 10.98.0.2/24 dev eth0; ip -n c link set eth0 up";

fn shell(script: &str) {
    assert!(Command::new("sh").args(["-ec", script]).status().expect("sh").success(), "{script}");
}

/// Runs this test again in a separate network. Returns false if it runs there already.
fn enter(test: &str) -> bool {
    let mut try_it = Command::new("unshare");
    try_it.args(sandbox::UNSHARE).args(["sh", "-ec", LINK]).stdin(Stdio::null());
    if !sandbox::inside() && !try_it.output().is_ok_and(|tried| tried.status.success()) {
        sandbox::skipped(test, "this machine permits no network namespaces");
        return true;
    }
    sandbox::enter(&["--exact", test, "--nocapture"])
}

/// The node notices that its client acknowledges nothing, long after the client has stopped to believe in its hold, and
/// then ends the hold as it was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_off_loses_its_hold() {
    if enter("http_cut::a_client_that_is_cut_off_loses_its_hold") {
        return;
    }
    shell(LINK);
    let places = [(); 3].map(|()| Place { host: NODES.to_owned(), ..Place::default() });
    let cluster = Cluster::start_at(places, "fast", None).await;
    let node = cluster.a_follower().await;
    let port = HttpPort::new(&cluster.http(node));
    let url = format!("http://{}/v1/ns/default/hold", cluster.http(node));
    let mut clients = Vec::new();
    for (lock, on_close) in [("a", "expire"), ("b", "release")] {
        let body = json!({"lock": lock, "ttl_ms": 3_000, "on_close": on_close}).to_string();
        let mut curl = Command::new("ip");
        curl.args(["netns", "exec", "c", "curl", "-sSN", "-H", "content-type: application/json", "-d", &body, &url]);
        clients.push(curl.stdout(Stdio::null()).spawn().expect("curl"));
        port.await_count(lock, "holders", 1);
    }
    shell("ip -n c link set eth0 down");
    let cut = Instant::now();
    let mut free = [None; 2];
    while free.contains(&None) {
        assert!(cut.elapsed() < 2 * PATIENCE, "free after {free:?}");
        for (free, lock) in free.iter_mut().zip(["a", "b"]) {
            if port.count(lock, "holders") == 0 {
                free.get_or_insert(cut.elapsed());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Until 0.6 of the TTL after its last event, the client may believe in its hold.
    let silence = Duration::from_millis(1_800);
    assert!(free.iter().flatten().all(|free| silence < *free), "{free:?}");
    assert!(free[1] < free[0], "`release` ends it before its deadline: {free:?}");
    for mut client in clients {
        client.kill().expect("killed");
        client.wait().expect("ended");
    }
}

/// A node that is partitioned from the others reports the loss of a hold before another client gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_reports_the_loss_in_time() {
    if enter("http_cut::a_node_that_is_cut_off_reports_the_loss_in_time") {
        return;
    }
    shell(LINK);
    let near = Place { host: NODES.to_owned(), ..Place::default() };
    let launcher = ["ip", "netns", "exec", "c"].map(str::to_owned).to_vec();
    let apart = Place { host: APART.to_owned(), launcher, ..Place::default() };
    let cluster = Cluster::start_at([near.clone(), near, apart], "fast", None).await;
    let url = format!("http://{}/v1/ns/default/hold", cluster.http(3));
    let body = json!({"lock": "a", "ttl_ms": 4_000}).to_string();
    let mut curl = Command::new("ip");
    curl.args(["netns", "exec", "c", "curl", "-sSN", "-H", "accept: application/x-ndjson"]);
    curl.args(["-H", "content-type: application/json", "-d", &body, &url]).stdout(Stdio::piped());
    let mut curl = curl.spawn().expect("curl");
    let mut lines = BufReader::new(curl.stdout.take().expect("its output")).lines();
    let first: Value = serde_json::from_str(&lines.next().expect("a grant").expect("read")).expect("JSON");
    assert_eq!(first["event"], "granted");
    let mut next = HttpPort::new(&cluster.http(1)).hold(&json!({"lock": "a", "ttl_ms": 4_000}));
    next.until("waiting");
    let lost = std::thread::spawn(move || {
        let last = lines.last().expect("a last event").expect("read");
        (Instant::now(), serde_json::from_str::<Value>(&last).expect("JSON"))
    });
    shell("ip -n c link set eth0 down");
    next.until("granted");
    let granted = Instant::now();
    let (at, last) = lost.join().expect("read");
    assert_eq!([&last["event"], &last["reason"]], [&json!("lost"), &json!("deadline")]);
    // This test may read the two streams at different speeds. A node that reports the end of the session alone is late
    // by almost the TTL of 4 s.
    assert!(at < granted + Duration::from_secs(3), "reported {:?} after the next grant", at - granted);
    curl.wait().expect("ended");
}
