//! `doctor`: each check is seen to pass, and those that a cluster of this machine can break are seen to fail.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::Instant;

use serde_json::Value;

use crate::cluster::{Cluster, PATIENCE};

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
    let file = cluster.config(node).to_string_lossy().into_owned();
    let Output { status, stdout, .. } =
        cluster.command(&["doctor", "--config", &file, "--json"]).output().expect("ran");
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

/// A healthy cluster passes. A dead node is a failure of the quorum, and a directory of another node, one that others
/// can read, and a port that another process has are named.
#[tokio::test]
async fn what_is_broken_is_named() {
    let mut cluster = Cluster::start().await;
    let examined = doctor(&cluster, 1);
    for check in ["config", "data", "ports", "exposure", "quorum", "versions"] {
        assert_eq!(examined.level(check), "ok", "{check}: {}", examined.text);
    }
    for check in ["clock", "limits", "space", "disk", "round trip", "last hours"] {
        assert!(!examined.level(check).is_empty(), "{check} was not made: {}", examined.text);
    }
    assert!(examined.text.contains("in use while the node runs"), "{}", examined.text);

    cluster.kill(3);
    let started = Instant::now();
    while doctor(&cluster, 1).level("quorum") != "fail" {
        assert!(started.elapsed() < PATIENCE, "a cluster of two nodes survives no failure");
    }
    assert_eq!(doctor(&cluster, 1).code, Some(1));

    // The node that does not run: its port has another process, and other users can read its directory.
    let config = fs::read_to_string(cluster.config(3)).expect("a configuration");
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
