//! Backups of a running cluster, and clusters that are restored from them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::model::FencingToken;
use lockkeeper::rpc::RemoteService;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::single_node::{SingleNode, free_addresses};
use crate::wait::wait_for;

fn run(cluster: &Cluster, arguments: &[&str]) -> Output {
    cluster.command(arguments).output().expect("ran")
}

/// Runs `backup -`, whose output is the backup and nothing else, also with `--json`.
fn piped_backup(cluster: &Cluster) -> Vec<u8> {
    let output = run(cluster, &["backup", "-", "--json"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs a command that must fail as a usage error. Returns what it prints on standard error.
fn refused(cluster: &Cluster, arguments: &[&str]) -> String {
    failed(cluster, 64, arguments)
}

/// Runs a command that must fail with this exit code. Returns what it prints on standard error, which must not be the
/// text for an unknown error.
fn failed(cluster: &Cluster, code: i32, arguments: &[&str]) -> String {
    let output = run(cluster, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(!stderr.contains("please report it"), "{stderr}");
    stderr
}

/// Restores into a directory of this name and starts the node with the printed config.
fn restored(cluster: &Cluster, backup: &str, name: &str, options: &[&str]) -> (SingleNode, Value) {
    let data = cluster.folder().join(name);
    let [client, peer] = free_addresses();
    let place = ["restore", backup, "--data", data.to_str().unwrap(), "--client", &client, "--peer", &peer];
    let printed = cluster.answer(&[&place, options].concat());
    (
        SingleNode::start(cluster.folder(), &format!("{name}-node"), printed["config"].as_str().unwrap(), &client),
        printed,
    )
}

/// Acquires and releases twenty locks. Returns their tokens.
async fn tokens(client: &Client<RemoteService>) -> BTreeSet<FencingToken> {
    let mut tokens = BTreeSet::new();
    for number in 0..20 {
        let guard = client.lock(&format!("n{number}")).acquire().await.expect("free");
        tokens.insert(guard.token());
        guard.release().await.expect("released");
    }
    tokens
}

fn flipped(file: &Path, to: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(to, bytes).unwrap();
}

/// Two clusters restored from one backup never grant a token that the other cluster or the old one granted. The old
/// sessions have ended. Without `--grant-immediately` nothing is granted at first, and a try is refused with the
/// reason. A backup with the largest epoch is not restored.
#[tokio::test]
async fn restored_clusters_never_repeat_a_token() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
    let held = session.lock("held").acquire().await.expect("free");
    let file = cluster.folder().join("harbour.backup");
    let file = file.to_str().unwrap();
    let made = cluster.answer(&["backup", file]);
    assert_eq!((&made["cluster"], &made["sessions"]), (&"test".into(), &1.into()));
    assert!(refused(&cluster, &["backup", file]).contains("exists already"));
    let mut old = tokens(&client).await;
    old.insert(held.token());

    let (first, printed) = restored(&cluster, file, "first", &["--grant-immediately"]);
    assert_eq!((&printed["sessions_ended"], &printed["closed_ms"]), (&1.into(), &0.into()));
    let (second, again) = restored(&cluster, file, "second", &["--now"]);
    assert_ne!(printed["cluster_id"], again["cluster_id"]);
    assert_ne!(printed["cluster_id"], made["cluster_id"]);
    let (one, other) = (tokens(&first.leads().await).await, tokens(&second.leads().await).await);
    assert!(one.is_disjoint(&other), "{one:?} {other:?}");
    assert!(old.last() < one.first() && old.last() < other.first(), "{old:?} {one:?} {other:?}");
    let view = first.leads().await.inspect("held").await.expect("inspected").value;
    assert_eq!(view.holders, [], "its session has ended");

    let piped = cluster.folder().join("piped.backup");
    std::fs::write(&piped, piped_backup(&cluster)).expect("written");
    let (closed, printed) = restored(&cluster, piped.to_str().unwrap(), "closed", &["--epoch", "32767"]);
    assert_eq!((&printed["epoch"], &printed["closed_ms"]), (&32_767.into(), &600_000.into()));
    let status = closed.status_when(|status| status.leader.is_some()).await;
    assert!((500_000..=600_000).contains(&status.closed_ms), "{status:?}");
    let tried = run(&cluster, &["lock", "-n", "held", "--endpoints", &closed.client, "--json", "--", "true"]);
    let stderr: Value = serde_json::from_slice(&tried.stderr).expect("an error");
    assert_eq!((tried.status.code(), &stderr["error"]), (Some(75), &"not-acquired".into()));
    assert!(stderr["detail"].as_str().unwrap().contains("was restored from a backup"), "{stderr}");
    let client = closed.leads().await;
    let waits = tokio::spawn(async move { client.lock("held").acquire().await });
    let explain = || run(&cluster, &["explain", "held", "--endpoints", &closed.client]);
    let explained = wait_for("the waiter", async || {
        let printed = String::from_utf8_lossy(&explain().stdout).into_owned();
        if printed.contains("has waited") { Ok(printed) } else { Err(printed) }
    });
    let explained = explained.await;
    assert!(explained.contains("nothing is granted for another"), "{explained}");
    assert!(!explained.contains("wait for each other"), "{explained}");
    waits.abort();

    let (last, data) = (cluster.folder().join("last.backup"), cluster.folder().join("none"));
    let (last, name) = (last.to_str().unwrap(), data.to_str().unwrap());
    cluster.answer(&["backup", last, "--endpoints", &closed.client]);
    let stderr = refused(&cluster, &["restore", last, "--data", name]);
    assert!(stderr.contains("epoch: above 32767, the epoch of the backup, got 32767"), "{stderr}");
    assert!(!data.exists());
}

/// A damaged backup, a backup of another cluster, a file that is no backup, and a directory in use are refused with the
/// name of the file or directory, and nothing is created.
#[tokio::test]
async fn an_unusable_backup_is_refused_by_name() {
    let cluster = Cluster::start().await;
    cluster.client().lock("a").acquire().await.expect("free").release().await.expect("released");
    let file = cluster.folder().join("harbour.backup");
    let (backup, bad, data) = (file.to_str().unwrap(), cluster.folder().join("bad"), cluster.folder().join("new"));
    cluster.answer(&["backup", backup]);
    let (bad_name, data_name) = (bad.to_str().unwrap(), data.to_str().unwrap());
    flipped(&file, &bad);
    let stderr = failed(&cluster, 65, &["restore", bad_name, "--data", data_name]);
    assert!(stderr.contains(bad_name) && stderr.contains("offset"), "{stderr}");
    assert!(stderr.contains("use another one") && !stderr.contains("--help"), "{stderr}");
    fs::write(&bad, "notes").unwrap();
    assert!(failed(&cluster, 65, &["restore", bad_name, "--data", data_name]).contains("is not a whole backup"));
    let nowhere = cluster.folder().join("nope").join("x");
    let stderr = refused(&cluster, &["backup", nowhere.to_str().unwrap()]);
    assert!(
        stderr.contains(&format!("{}: ", nowhere.parent().unwrap().display())) && !stderr.contains("--help"),
        "{stderr}"
    );
    let stderr = refused(&cluster, &["restore", backup, "--data", data_name, "--cluster", "elsewhere"]);
    assert!(stderr.contains("the backup is of, \"test\""), "{stderr}");
    let stderr = refused(&cluster, &["restore", backup, "--data", data_name, "--node", "9"]);
    assert!(stderr.contains("[1, 2, 3]"), "{stderr}");
    assert!(!data.exists());
    let in_use = cluster.folder().join("n1");
    assert!(refused(&cluster, &["restore", backup, "--data", in_use.to_str().unwrap()]).contains("is not empty"));
}
