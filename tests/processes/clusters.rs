//! Commands whose endpoints belong to two clusters, or are no client ports.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use lockkeeper::client::Client;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use serde_json::Value;

use crate::cluster::{Cluster, PATIENCE};
use crate::ports::free_ports;
use crate::single_node::{SingleNode, config_of_one};

/// A cluster of one process.
struct One {
    node: SingleNode,
    /// The HTTP address and the peer address of the process.
    others: [String; 2],
    cluster_id: String,
}

impl One {
    async fn start(name: &str, folder: &std::path::Path) -> Self {
        let [client, peer, http] = free_ports().map(|port| format!("127.0.0.1:{port}"));
        let config = config_of_one(name, &folder.join(name), &client, &peer) + &format!("[listen]\nhttp = {http:?}\n");
        let node = SingleNode::start(folder, &format!("{name}-node"), &config, &client);
        let status = node.status_when(|status| status.leader.is_some() && status.cluster_id.is_some()).await;
        Self { node, others: [http, peer], cluster_id: format!("{:032x}", status.cluster_id.expect("founded")) }
    }
}

/// A `lockkeeper` command with these endpoints.
fn command(endpoints: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(["--endpoints", &endpoints.join(",")]).args(arguments);
    command.env_remove("LOCKKEEPER_CLUSTER").env_remove("LOCKKEEPER_LOG");
    command
}

/// Runs a command. Returns its exit code, standard output and standard error.
fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("ran");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Endpoints of two clusters are a usage error that names both, also as JSON. With `--cluster`, or its variable, the
/// command uses the named cluster, and a warning names the other one. An id that no endpoint has, and a text that is no
/// id, are usage errors.
#[tokio::test]
async fn two_clusters_behind_one_list_are_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, other) = (One::start("one", folder.path()).await, One::start("other", folder.path()).await);
    let mixed = [other.node.client.as_str(), one.node.client.as_str()];
    let lock = ["lock", "nightly", "--", "true"];

    let (code, _, stderr) = ran(command(&mixed, &lock));
    assert_eq!(code, Some(64), "{stderr}");
    for named in [&one.cluster_id, &other.cluster_id, &one.node.client, &other.node.client] {
        assert!(stderr.contains(named) && stderr.contains("--cluster"), "{stderr}");
    }
    let (code, _, stderr) = ran(command(&mixed, &["status", "--json"]));
    let error: Value = serde_json::from_str(&stderr).expect("one object");
    assert_eq!((code, &error["error"], &error["exit"]), (Some(64), &"invalid".into(), &64.into()));
    assert!(error["detail"].as_str().expect("a text").contains(&one.cluster_id), "{error}");

    let warning = format!("{} belongs to cluster {} and is left out", other.node.client, other.cluster_id);
    let (code, _, stderr) = ran(command(&mixed, &[&["--cluster", &one.cluster_id], &lock[..]].concat()));
    assert_eq!((code, stderr.matches(&warning).count()), (Some(0), 1), "{stderr}");
    let (code, _, stderr) = ran(command(&mixed, &[&["--json", "--cluster", &one.cluster_id], &lock[..]].concat()));
    let lines = stderr.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let warnings = lines.filter(|line| line["warning"].as_str().is_some_and(|text| text.contains(&warning)));
    assert_eq!((code, warnings.count()), (Some(0), 1), "{stderr}");
    let mut by_variable = command(&mixed, &["status", "--json"]);
    by_variable.env("LOCKKEEPER_CLUSTER", &one.cluster_id);
    let (code, shown, stderr) = ran(by_variable);
    let status: Value = serde_json::from_str(&shown).expect("an object");
    assert_eq!((code, &status["cluster_id"]), (Some(0), &Value::from(one.cluster_id.as_str())), "{stderr}");
    assert_eq!(status["cluster"], "one");

    let unknown = "0123456789abcdef".repeat(2);
    let (code, _, stderr) = ran(command(&mixed, &[&["--cluster", &unknown], &lock[..]].concat()));
    assert_eq!(code, Some(64), "{stderr}");
    assert!([&unknown, &one.cluster_id, &other.cluster_id].iter().all(|id| stderr.contains(id.as_str())), "{stderr}");
    let (code, _, stderr) = ran(command(&mixed, &["--cluster", "one", "status"]));
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("--cluster") && stderr.contains("32 hexadecimal digits"), "{stderr}");
    assert!(stderr.contains("`lockkeeper status` shows it"), "{stderr}");
}

/// Reads the cluster id from each node. All must be equal.
async fn one_id(cluster: &Cluster) -> String {
    let mut ids = BTreeSet::new();
    for endpoint in cluster.endpoints() {
        let service = RemoteService::new(RemoteSettings::new([endpoint])).expect("an endpoint");
        let client = Client::new(service).request_wait(PATIENCE);
        ids.insert(client.cluster_id().await.expect("founded"));
    }
    assert_eq!(ids.len(), 1, "{ids:x?}");
    format!("{:032x}", ids.first().expect("one"))
}

/// All nodes of a cluster report one id, also after a restart. If all nodes lose their data, they found a new cluster
/// at the same addresses and with the same configs: its id is new, and a command that names the old id is refused and
/// shows both.
#[tokio::test]
async fn a_cluster_that_is_founded_again_has_a_new_id() {
    let mut cluster = Cluster::start().await;
    let old = one_id(&cluster).await;
    let restart = |cluster: &mut Cluster, wiped: bool| {
        (1..=3).for_each(|node| cluster.kill(node));
        for node in 1..=3 {
            if wiped {
                std::fs::remove_dir_all(cluster.folder().join(format!("n{node}"))).expect("its data");
            }
            cluster.spawn(node);
        }
    };
    restart(&mut cluster, false);
    assert_eq!(one_id(&cluster).await, old);

    restart(&mut cluster, true);
    let new = one_id(&cluster).await;
    assert_ne!(new, old);
    let endpoints = cluster.endpoints();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let named = |id: &str| ran(command(&endpoints, &["--cluster", id, "lock", "nightly", "--", "true"]));
    let (code, _, stderr) = named(&old);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains(&old) && stderr.contains(&new), "{stderr}");
    let (code, _, stderr) = named(&new);
    assert_eq!(code, Some(0), "{stderr}");
}

/// The first line of `status` is the id that `--cluster` takes. A command under `lock` gets that id in its environment
/// if the outer run had one.
#[tokio::test]
async fn status_shows_the_id_that_names_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = One::start("one", folder.path()).await;
    let (code, shown, stderr) = ran(command(&[&one.node.client], &["status"]));
    assert_eq!((code, shown.lines().next()), (Some(0), Some(&*format!("cluster_id {}", one.cluster_id))), "{stderr}");
    let script = "echo \"<$LOCKKEEPER_CLUSTER>\"";
    for (named, expected) in [(&["--cluster", &one.cluster_id][..], &*one.cluster_id), (&[], "")] {
        let lock = [named, &["lock", "nightly", "--", "sh", "-c", script]].concat();
        let (code, shown, stderr) = ran(command(&[&one.node.client], &lock));
        assert_eq!((code, shown.trim()), (Some(0), &*format!("<{expected}>")), "{stderr}");
    }
}

/// The HTTP port and the peer port of a node in the list of endpoints are ignored with a warning. If the list has only
/// such ports, the error says that they are no client ports.
#[tokio::test]
async fn a_wrong_port_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = One::start("one", folder.path()).await;
    let [http, peer] = one.others.each_ref().map(String::as_str);
    let (code, _, stderr) = ran(command(&[http, peer, &one.node.client], &["lock", "nightly", "--", "true"]));
    assert_eq!(code, Some(0), "{stderr}");
    for port in [http, peer] {
        assert!(stderr.contains(&format!("{port} is not a lockkeeper client port")), "{stderr}");
    }
    let (code, _, stderr) = ran(command(&[http, peer], &["--timeout", "3s", "status", "--json"]));
    let error: Value = serde_json::from_str(&stderr).expect("one object");
    assert_eq!((code, &error["error"]), (Some(69), &"unreachable".into()));
    for port in [http, peer] {
        let sentence = format!("{port} is not a lockkeeper client port");
        assert!(error["detail"].as_str().expect("a text").contains(&sentence), "{error}");
    }
}
