//! The metrics of nodes that run: what the manual, the alerts and the dashboard name exists, and it counts what
//! happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lockkeeper::client::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::http::{HttpPort, get};
use crate::wait::wait_for;

/// Metrics that a node without TLS does not have.
const WITH_TLS: [&str; 2] = ["lockkeeper_tls_certificate_expiry_timestamp_seconds", "lockkeeper_tls_refused_total"];

/// The samples of a node, each by its name and labels.
struct Samples(BTreeMap<String, f64>);

impl Samples {
    fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with("lockkeeper_") || line.starts_with("process_"));
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        };
        Self(lines.map(sample).collect())
    }

    /// The samples of a metric that have all these labels.
    fn with<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = f64> + 'a {
        let has = move |series: &str| {
            let Some((found, of)) = series.trim_end_matches('}').split_once('{') else { return false };
            let of: Vec<_> = of.split(',').collect();
            found == name && labels.iter().all(|(label, value)| of.contains(&format!("{label}=\"{value}\"").as_str()))
        };
        self.0.iter().filter(move |(series, _)| has(series)).map(|(_, value)| *value)
    }

    /// The value of the one sample with these labels.
    fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<_> = self.with(name, labels).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?} in {:?}", self.0.keys());
        found[0]
    }
}

fn samples(cluster: &Cluster, node: usize) -> Samples {
    Samples::of(&get(&cluster.http(node), "/metrics"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect("a file")
}

/// The words of a text that may be names of metrics.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The metrics that an expression or a text names, without the suffixes of the series of a histogram.
fn named<'a>(text: &'a str, known: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let of = |word: &'a str| {
        let bare = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
        bare.filter(|bare| known.contains(*bare)).unwrap_or(word)
    };
    words(text).map(of).filter(|word| word.starts_with("lockkeeper_") || word.starts_with("process_")).collect()
}

/// A node shows every metric of the manual, with its kind and a help text, and no other metric. The alerts and the
/// dashboard name only metrics that it shows, and each alert leads to its section of the manual.
#[tokio::test]
async fn what_the_manual_the_alerts_and_the_dashboard_name_exists() {
    let cluster = Cluster::start().await;
    let page = file("src/manual/monitoring.md");
    let rows = page.lines().filter(|line| line.starts_with("| `lockkeeper_") || line.starts_with("| `process_"));
    let documented: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .collect();
    for node in 1..=3 {
        // The other members are known once this node has read the log.
        let of_peers = |samples: &Samples| samples.with("lockkeeper_raft_follower_lag_entries", &[]).count() == 2;
        await_samples(&cluster, node, "two peers", of_peers).await;
        let text = get(&cluster.http(node), "/metrics");
        let shown: BTreeMap<_, _> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect();
        let mut expected = documented.clone();
        WITH_TLS.iter().for_each(|name| drop(expected.remove(*name).expect("documented")));
        assert_eq!(shown, expected, "node {node}");
        let helpless: Vec<_> = shown.keys().filter(|name| !text.contains(&format!("# HELP {name} "))).collect();
        assert!(helpless.is_empty(), "no help for {helpless:?}");
        let own = format!("node=\"{node}\"");
        let elsewhere: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("lockkeeper_") || line.starts_with("process_"))
            .filter(|line| line.matches("node=\"").count() != 1 || !line.contains(&own))
            .collect();
        assert!(elsewhere.is_empty(), "series without the label of node {node}: {elsewhere:?}");
    }

    let known: BTreeSet<_> = documented.into_keys().collect();
    let alerts = file("scripts/monitoring/alerts.yml");
    let dashboard: Value = serde_json::from_str(&file("scripts/monitoring/dashboard.json")).expect("JSON");
    for (source, text) in [("alerts", alerts.clone()), ("dashboard", dashboard.to_string())] {
        let named = named(&text, &known);
        let unknown: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "the {source} name metrics that do not exist: {unknown:?}");
        assert!(named.len() > 15, "the {source} name only {named:?}");
    }
    let shown = named(&dashboard.to_string(), &known).into_iter().map(ToOwned::to_owned).collect();
    let missing: Vec<_> = known.difference(&shown).collect();
    assert!(missing.is_empty(), "the dashboard lacks {missing:?}");

    let values = |key: &'static str| alerts.lines().filter_map(move |line| line.trim().strip_prefix(key));
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let names: BTreeSet<_> = values("- alert: ").collect();
    assert_eq!(names, sections, "each alert has a section, and each section an alert");
    let links: Vec<_> = values("runbook: ").collect();
    let expected: Vec<_> =
        values("- alert: ").map(|name| format!("src/manual/monitoring.md#{}", name.to_ascii_lowercase())).collect();
    assert_eq!(links, expected);
    let tests = file("scripts/monitoring/alerts_test.yml");
    let untested: Vec<_> = names.iter().filter(|name| !tests.contains(&format!("alertname=\"{name}\""))).collect();
    assert!(untested.is_empty(), "no test shows that these fire: {untested:?}");
}

/// Waits until the metrics of a node satisfy a condition: some are measured once a second.
async fn await_samples(cluster: &Cluster, node: usize, what: &str, holds: impl Fn(&Samples) -> bool) -> Samples {
    wait_for(what, async || Some(samples(cluster, node)).filter(&holds).ok_or("not measured")).await
}

/// What happens in a namespace is counted there on every node, by its reason. What callers of a node are refused is
/// counted on that node alone.
#[tokio::test]
async fn what_happens_is_counted() {
    let cluster = Cluster::start().await;
    let port = HttpPort::new(&cluster.http(1));
    let at = |namespace: &str, call: &str, body: Value| {
        let path = format!("/v1/ns/{namespace}/{call}");
        port.at("POST", &path, Some(("application/json", &body.to_string())))
    };
    let lease = |namespace: &str, lock: &str| at(namespace, "acquire", json!({"lock": lock, "lease_ms": 600_000}));
    for lock in ["a", "b"] {
        let taken = lease("ci", lock);
        assert_eq!(taken.status, 200, "{taken:?}");
        let broken = lock == "b";
        let ended = if broken {
            at("ci", "break", json!({"lock": lock, "token": taken.body["token"], "why": "a test"}))
        } else {
            at("ci", "release", json!({"lock": lock, "handle": taken.body["handle"]}))
        };
        assert_eq!(ended.status, 200, "{ended:?}");
    }
    assert_eq!(lease("ci", "held").status, 200);
    assert_eq!(lease("ci", "held").status, 409);

    let ci = [("namespace", "ci")];
    for node in 1..=3 {
        // A scrape may see a part of the sizes before their update, and the others after it.
        let all = await_samples(&cluster, node, "one holder in ci", |samples| {
            ["lockkeeper_holders", "lockkeeper_locks"].iter().all(|size| samples.with(size, &ci).eq([1.0]))
        })
        .await;
        let ended = |reason| all.one("lockkeeper_holds_ended_total", &[("namespace", "ci"), ("reason", reason)]);
        assert_eq!((ended("released"), ended("broken"), ended("expired")), (1.0, 1.0, 0.0), "node {node}");
        assert_eq!(all.one("lockkeeper_grants_total", &ci), 3.0);
        assert_eq!(all.one("lockkeeper_grants_total", &[("namespace", "other")]), 0.0);
        assert_eq!(all.one("lockkeeper_raft_has_leader", &[]), 1.0);
        let refused = all.one("lockkeeper_refusals_total", &[("word", "not-acquired")]);
        assert_eq!(0.0 < refused, node == 1, "node {node} refused {refused}");
    }
    let refused = |word| samples(&cluster, 1).one("lockkeeper_refusals_total", &[("word", word)]);
    let (before, own) = (refused("invalid"), samples(&cluster, 1));
    // The port refuses the first of these, and the service the second one.
    for body in [json!({"lock": ""}), json!({"lock": "c", "lease_ms": 1_000, "wait_ms": u64::MAX})] {
        assert_eq!(at("ci", "acquire", body).status, 400);
    }
    assert_eq!(refused("invalid") - before, 2.0, "each is counted once");
    // A page of another site, another host, and a method that no path has, at a call and at another path.
    let (before, evil) = (["invalid", "not-permitted"].map(refused), port.with_header("origin: http://evil.example"));
    for path in ["/v1/status", "/healthz"] {
        assert_eq!(evil.at("GET", path, None).status, 403, "{path}");
        assert_eq!(port.with_host("evil.example").at("GET", path, None).status, 421, "{path}");
        assert_eq!(port.at("PUT", path, None).status, 405, "{path}");
    }
    let after = ["invalid", "not-permitted"].map(refused);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [4.0, 2.0], "each is counted once");
    let route = ("route", "/v1/ns/{namespace}/acquire");
    let requests = |code| own.one("lockkeeper_http_requests_total", &[route, ("code", code)]);
    assert_eq!((requests("200"), requests("409")), (3.0, 1.0));
    assert_eq!(own.one("lockkeeper_http_request_duration_seconds_count", &[("kind", "wait")]), 4.0);
    assert_eq!(own.one("lockkeeper_http_request_duration_seconds_count", &[("kind", "command")]), 2.0);
}

/// A follower whose leader and whose other peer are gone shows that it knows no leader, as the alert on it needs.
#[tokio::test]
async fn a_follower_that_is_left_alone_shows_no_leader() {
    let mut cluster = Cluster::start().await;
    let left = cluster.a_follower().await;
    await_samples(&cluster, left, "a leader", |samples| samples.with("lockkeeper_raft_has_leader", &[]).eq([1.0]))
        .await;
    (1..=3).filter(|node| *node != left).for_each(|node| cluster.kill(node));
    await_samples(&cluster, left, "no leader", |samples| samples.with("lockkeeper_raft_has_leader", &[]).eq([0.0]))
        .await;
}

/// The calls and streams of the port for clients are counted while they last and after they have ended.
#[tokio::test]
async fn calls_and_streams_are_counted() {
    // An election would begin another stream. On a busy machine this profile causes none.
    let cluster = Cluster::start_with("wan").await;
    // The other nodes would send the session to the leader.
    let leader = cluster.await_leader().await;
    let client = Client::connect([&cluster.endpoints()[leader - 1]]).await.expect("an address");
    let guard = client.lock("a").acquire().await.expect("free");
    let during = await_samples(&cluster, leader, "an open stream", |samples| {
        samples.with("lockkeeper_grpc_streams", &[]).eq([1.0])
    })
    .await;
    assert_eq!(during.with("lockkeeper_grpc_requests_total", &[("method", "Locks/Session")]).count(), 0);
    client.totals().await.expect("answered");
    guard.release().await.expect("released");
    drop(client);
    let after = await_samples(&cluster, leader, "no open stream", |samples| {
        samples.with("lockkeeper_grpc_streams", &[]).eq([0.0])
    })
    .await;
    let ended: f64 = after.with("lockkeeper_grpc_requests_total", &[("method", "Locks/Session")]).sum();
    assert_eq!(ended, 1.0);
    let queries = after.one("lockkeeper_grpc_requests_total", &[("method", "Locks/Query"), ("code", "0")]);
    assert!(1.0 <= queries, "{queries}");
    let read = after.one("lockkeeper_grpc_request_duration_seconds_count", &[("kind", "read")]);
    assert!(queries <= read, "{queries} of {read}");
}

/// The leader reports the longest wait in each namespace, and its followers; the other nodes report none.
#[tokio::test]
async fn the_leader_measures_waits_and_followers() {
    // A leader measures waits every 15 s, so the test needs one leader for that long. On a busy machine this profile
    // causes no election.
    let mut cluster = Cluster::start_with("wan").await;
    let leader = cluster.await_leader().await;
    let client = cluster.client();
    let _held = client.lock("a").acquire().await.expect("free");
    let other = cluster.client();
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await.map(drop) });
    let default = [("namespace", "default")];
    let measured = await_samples(&cluster, leader, "a wait", |samples| {
        samples.with("lockkeeper_longest_wait_seconds", &default).any(|longest| 0.0 < longest)
            && samples.with("lockkeeper_waiters", &default).eq([1.0])
    })
    .await;
    let answered = measured.with("lockkeeper_raft_peer_rtt_seconds", &[]).filter(|seconds| 0.0 < *seconds).count();
    assert_eq!(answered, 2, "both followers");
    for follower in (1..=3).filter(|node| *node != leader) {
        // A follower applies an entry at the next heartbeat, and measures its namespaces once a second.
        let samples = await_samples(&cluster, follower, "the waiter", |samples| {
            samples.with("lockkeeper_waiters", &default).eq([1.0])
        })
        .await;
        assert_eq!(samples.one("lockkeeper_longest_wait_seconds", &default), 0.0);
        assert!(samples.with("lockkeeper_raft_peer_rtt_seconds", &[]).all(|seconds| seconds == 0.0));
    }
    let dead = (1..=3).find(|node| *node != leader).expect("a follower");
    cluster.kill(dead);
    let peer = dead.to_string();
    for lock in 0..20 {
        client.lock(&format!("l{lock}")).acquire().await.expect("free").release().await.expect("released");
    }
    await_samples(&cluster, leader, "a follower that is behind", |samples| {
        samples.with("lockkeeper_raft_follower_lag_entries", &[("peer", &peer)]).any(|lag| 20.0 <= lag)
    })
    .await;
    waiter.abort();
}
