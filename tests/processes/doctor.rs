//! `doctor`: each check is seen to pass, and those that a cluster of this machine can break are seen to fail.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

use crate::cluster::{Cluster, Place};
use crate::crash::faults::clocks;
use crate::wait::{wait_for, wait_until};

/// The worst level of each check, the exit code, and the whole output.
struct Examined {
    levels: BTreeMap<String, String>,
    code: Option<i32>,
    text: String,
}

impl Examined {
    fn level(&self, check: &str) -> &str {
        self.levels.get(check).map_or("", String::as_str)
    }
}

fn doctor(cluster: &Cluster, node: usize) -> Examined {
    doctor_with(cluster, node, &[])
}

/// Runs `doctor` with further options.
fn doctor_with(cluster: &Cluster, node: usize, options: &[&str]) -> Examined {
    let file = cluster.config(node).to_string_lossy().into_owned();
    examine(&mut cluster.command(&[&["doctor", "--config", &file, "--json"], options].concat()))
}

fn examine(doctor: &mut Command) -> Examined {
    let Output { status, stdout, .. } = doctor.output().expect("ran");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let mut levels = BTreeMap::<String, String>::new();
    for line in text.lines() {
        let finding: Value = serde_json::from_str(line).expect("an object");
        let word = |field: &str| finding[field].as_str().expect("a text").to_owned();
        assert_eq!(word("level") == "ok", finding["advice"].is_null(), "each problem has an advice: {line}");
        let worst = levels.entry(word("check")).or_insert_with(|| "ok".to_owned());
        if worst != "fail" && word("level") != "ok" {
            *worst = word("level");
        }
    }
    Examined { levels, code: status.code(), text }
}

/// Returns a frame of `top`, with further options.
pub(crate) fn top(cluster: &Cluster, options: &[&str]) -> Value {
    cluster.answer(&[&["top", "--delay", "200ms"], options].concat())
}

/// A healthy cluster passes. A dead node is a failure of the quorum, and a directory of another node, one that others
/// can read, and a port that another process has are named, also while the node runs.
#[tokio::test]
async fn what_is_broken_is_named() {
    let mut cluster = Cluster::start().await;
    let sound = ["config", "data", "ports", "exposure", "quorum", "versions"];
    // An election on a busy machine fails the quorum until it is over.
    let examined = wait_for("a healthy cluster", async || {
        let examined = doctor(&cluster, 1);
        if sound.iter().all(|check| examined.level(check) == "ok") { Ok(examined) } else { Err(examined.text) }
    })
    .await;
    for check in ["clock", "limits", "space", "disk", "round trip", "last hour"] {
        assert!(!examined.level(check).is_empty(), "{check} was not made: {}", examined.text);
    }
    assert!(examined.text.contains("in use while the node runs"), "{}", examined.text);

    // Without addresses, the members of the configuration are asked.
    let file = cluster.config(1).to_string_lossy().into_owned();
    let mut alone = cluster.command(&["doctor", "--config", &file, "--json"]);
    alone.env_remove("LOCKKEEPER_ENDPOINTS");
    wait_until("the quorum is there", async || examine(&mut alone).level("quorum") == "ok").await;

    // The node runs, and another process has the port that its changed file names.
    let own = fs::read_to_string(cluster.config(1)).expect("a configuration");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let changed = own.replace(&cluster.http(1), &taken.local_addr().expect("bound").to_string());
    assert_ne!(changed, own);
    fs::write(cluster.config(1), changed).expect("a configuration");
    let examined = doctor(&cluster, 1);
    assert_eq!(examined.level("ports"), "fail", "{}", examined.text);
    for process in [cluster.process(1), std::process::id()] {
        assert!(examined.text.contains(&format!("(pid {process})")), "{}", examined.text);
    }
    fs::write(cluster.config(1), own).expect("a configuration");
    drop(taken);

    cluster.kill(3);
    // A cluster of two nodes survives no failure.
    wait_until("the quorum fails", async || doctor(&cluster, 1).level("quorum") == "fail").await;
    assert_eq!(doctor(&cluster, 1).code, Some(1));

    let config = fs::read_to_string(cluster.config(3)).expect("a configuration");
    the_only_taken_port_is_foreign(&cluster, &config);

    // The node that does not run: its port has another process, and other users can read its directory.
    let address = config.lines().find_map(|line| line.strip_prefix("client = ")).expect("a port").trim_matches('"');
    let taken = std::net::TcpListener::bind(address).expect("free since the kill");
    fs::set_permissions(cluster.folder().join("n3"), fs::Permissions::from_mode(0o755)).expect("a directory");
    let examined = doctor(&cluster, 3);
    assert_eq!([examined.level("ports"), examined.level("data")], ["fail", "warn"], "{}", examined.text);
    assert!(examined.text.contains(&format!("(pid {})", std::process::id())), "{}", examined.text);
    drop(taken);

    let foreign = config.replace("/n3\"", "/n2\"");
    assert_ne!(foreign, config);
    fs::write(cluster.config(3), foreign).expect("a configuration");
    let examined = doctor(&cluster, 3);
    assert_eq!(examined.level("data"), "fail", "the directory is that of node 2: {}", examined.text);
    fs::write(cluster.config(3), "cluster = 1\n").expect("a configuration");
    let examined = doctor(&cluster, 3);
    assert_eq!(examined.level("config"), "fail", "{}", examined.text);

    cluster.kill(1);
    cluster.kill(2);
    let shown = cluster.command(&["doctor", "--timeout", "1s"]).output().expect("ran");
    let text = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1));
    assert!(text.contains("FAIL  quorum"), "{text}");
}

/// A process has the directory of node 3 open, and another one has the only port of its file that is taken. Here this
/// process has the directory, and node 1 has the port.
fn the_only_taken_port_is_foreign(cluster: &Cluster, config: &str) {
    let lock = fs::File::open(cluster.folder().join("n3/lock")).expect("the file that a node locks");
    lock.try_lock().expect("free since the kill");
    let moved = config.replace(&cluster.http(3), &cluster.http(1));
    assert_ne!(moved, config);
    fs::write(cluster.config(3), moved).expect("a configuration");
    let examined = doctor(cluster, 3);
    assert_eq!(examined.level("ports"), "fail", "{}", examined.text);
    fs::write(cluster.config(3), config).expect("a configuration");
}

/// More than three changes of the leader within an hour are named, by each node that has seen them.
#[tokio::test]
async fn changes_of_the_leader_are_named() {
    let cluster = Cluster::start().await;
    for _ in 0..5 {
        // A transfer to a busy node may fail.
        wait_for("a transfer", async || {
            let follower = cluster.a_follower().await.to_string();
            let moved = cluster.command(&["transfer", &follower]).output().expect("ran");
            let why = String::from_utf8_lossy(&moved.stderr).into_owned();
            if moved.status.success() { Ok(()) } else { Err(why) }
        })
        .await;
    }
    wait_for("each node names the changes", async || {
        let text = doctor(&cluster, 1).text;
        let names = |line: &&str| line.contains("\"warn\"") && line.contains("changes of the leader in the last hour");
        if text.lines().filter(names).count() == 3 { Ok(()) } else { Err(text) }
    })
    .await;
}

/// Under TLS the metrics are read, too. A certificate warns a month before its end and fails a week before it, and one
/// of another node fails.
#[tokio::test]
async fn certificates_are_checked() {
    let cluster = Cluster::start_tls("fast").await;
    // A busy node may answer one request for its metrics too late.
    let examined = wait_for("the metrics are read", async || {
        let examined = doctor(&cluster, 1);
        if examined.level("metrics").is_empty() { Ok(examined) } else { Err(examined.text) }
    })
    .await;
    assert_eq!([examined.level("certificates"), examined.level("exposure")], ["ok"; 2], "{}", examined.text);
    assert!(!examined.level("last hour").is_empty(), "{}", examined.text);
    for (days, level) in [("20", "warn"), ("5", "fail")] {
        cluster.certs(&["--renew", "node-1", "--days", days]);
        let examined = doctor(&cluster, 1);
        assert_eq!(examined.level("certificates"), level, "{}", examined.text);
    }
    let certs = cluster.folder().join("certs");
    for kind in ["pem", "key"] {
        fs::copy(certs.join(format!("node-2.{kind}")), certs.join(format!("node-1.{kind}"))).expect("copied");
    }
    let examined = doctor(&cluster, 1);
    assert_eq!((examined.level("certificates"), examined.code), ("fail", Some(1)), "{}", examined.text);
}

/// In a cluster with `[auth]`, the metrics need a token with their right. Without it, `doctor` and `top` name the
/// missing right and show the rest.
#[tokio::test]
async fn metrics_need_their_right() {
    let mut cluster = Cluster::start().await;
    let (rules, token) = (cluster.folder().join("auth.toml"), cluster.folder().join("token"));
    let text = "version = 1\n[[role]]\nname = \"reader\"\nrules = [{ namespace = \"*\", right = \"admin\" }]\n\
                [[role]]\nname = \"watch\"\ncluster = [\"metrics\"]\n\
                [[principal]]\nname = \"anonymous\"\nroles = [\"reader\"]\n\
                [[principal]]\nname = \"ops\"\nroles = [\"reader\", \"watch\"]\n";
    fs::write(&rules, text).expect("rules");
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o600)).expect("private");
    let [rules, token] = [&rules, &token].map(|path| path.to_str().expect("a path").to_owned());
    let made = cluster.command(&["auth", "token", &rules, "ops", "--out", &token]).status().expect("ran");
    assert!(made.success());
    for node in 1..=3 {
        cluster.stop(node);
        let mut config = fs::read_to_string(cluster.config(node)).expect("a configuration");
        let audit = cluster.folder().join(format!("audit-{node}.jsonl"));
        config += &format!("[auth]\nfile = {rules:?}\n[audit]\nfile = {audit:?}\n");
        fs::write(cluster.config(node), config).expect("a configuration");
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    for node in 1..=3 {
        cluster.await_answer(node).await;
    }
    let examined = doctor(&cluster, 1);
    assert_eq!([examined.level("metrics"), examined.level("last hour")], ["warn", ""], "{}", examined.text);
    let notes = top(&cluster, &[])["notes"].to_string();
    assert!(notes.contains("403 Forbidden") && notes.contains("metrics"), "{notes}");
    let proof = ["--auth-token-file", &token];
    let examined = wait_for("the metrics are read", async || {
        let (examined, frame) = (doctor_with(&cluster, 1, &proof), top(&cluster, &proof));
        let is_complete = |node: &Value| node["memory_bytes"].is_u64();
        let all = frame["nodes"].as_array().expect("nodes").iter().all(is_complete);
        if examined.level("metrics").is_empty() && all { Ok(examined) } else { Err((examined.text, frame)) }
    })
    .await;
    assert!(!examined.level("last hour").is_empty(), "{}", examined.text);
}

/// `doctor` and `top` name a node whose wall clock is wrong. It is no failure, because no lock depends on it.
#[tokio::test]
async fn a_wrong_wall_clock_is_named() {
    if let Err(why) = clocks::possible() {
        return eprintln!("not run: {why}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    clocks::build(folder.path());
    clocks::set(folder.path(), 3, -3_600);
    let mut places: [Place; 3] = Default::default();
    places[2].environment = clocks::environment(folder.path(), 3);
    let cluster = Cluster::start_at(places, "fast", None).await;
    // A busy node may answer one request for its metrics too late.
    let texts = wait_for("both name the clock", async || {
        let examined = doctor(&cluster, 1);
        let notes = top(&cluster, &[])["notes"].to_string();
        let are_named = examined.level("wall clock") == "warn" && notes.contains("wall clock");
        if are_named { Ok([examined.text, notes]) } else { Err([examined.text, notes]) }
    })
    .await;
    for text in texts {
        assert!(text.contains("ahead of that of node 3") && text.contains("run NTP on both"), "{text}");
    }
}
