//! Membership changes while clients work: a damaged node is replaced, and a change that would endanger the quorum is
//! refused.

use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::Role;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::single_node::{SingleNode, free_addresses};
use crate::wait::wait_until;

fn run(cluster: &Cluster, arguments: &[&str]) -> Output {
    cluster.command(&[arguments, &["--json"]].concat()).output().expect("ran")
}

/// Runs a membership change that must be refused. Returns the reason.
fn refused(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = run(cluster, arguments);
    let error: Value = serde_json::from_slice(&output.stderr).expect("an error");
    assert_eq!((output.status.code(), &error["error"]), (Some(65), &"members-unfit".into()), "{arguments:?}: {error}");
    error["detail"].as_str().expect("a text").to_owned()
}

/// Adds node 4 and starts it with the config that was printed.
fn added(cluster: &Cluster) -> SingleNode {
    let [client, peer] = free_addresses();
    let data = cluster.folder().join("n4");
    let place = ["--client", &client, "--peer", &peer, "--data", data.to_str().unwrap()];
    let printed = cluster.answer(&[&["member", "add", "4"], &place[..]].concat());
    SingleNode::start(cluster.folder(), "n4", printed["config"].as_str().expect("a config"), &client)
}

/// The ids of the voters and of the learners.
fn members(cluster: &Cluster) -> (Vec<u64>, Vec<u64>) {
    let output = run(cluster, &["member", "ls"]);
    let lines = String::from_utf8(output.stdout).expect("text");
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let (voters, learners): (Vec<_>, Vec<_>) = all.partition(|member| member["voter"] == true);
    let ids = |members: Vec<Value>| members.iter().map(|member| member["id"].as_u64().unwrap()).collect();
    (ids(voters), ids(learners))
}

/// Flips a bit in the middle of a stopped node's log.
fn damage_log(cluster: &Cluster, node: usize) {
    let wal = cluster.folder().join(format!("n{node}")).join("wal");
    let files = fs::read_dir(wal).expect("a log").map(|entry| entry.expect("a file").path());
    let log = files.max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len())).expect("a file");
    let mut bytes = fs::read(&log).expect("a log");
    let early = bytes.len() / 4;
    bytes[early] ^= 1;
    fs::write(&log, bytes).expect("damaged");
}

/// Clients that acquire and release in a loop. None of their calls may fail.
struct Workers {
    stop: Arc<AtomicBool>,
    pairs: Arc<AtomicU64>,
    running: Vec<tokio::task::JoinHandle<()>>,
}

impl Workers {
    fn start(client: &Client<RemoteService>) -> Self {
        let (stop, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let work = |worker: u64| {
            let (client, stop, pairs) = (client.clone(), Arc::clone(&stop), Arc::clone(&pairs));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = client.lock(&format!("w{worker}")).acquire().await.expect("no call fails");
                    guard.release().await.expect("no call fails");
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let running = (0..3).map(work).collect();
        Self { stop, pairs, running }
    }

    /// Waits until the workers have completed twenty more pairs.
    async fn make_progress(&self) {
        let enough = self.pairs.load(Ordering::Relaxed) + 20;
        wait_until("the workers make progress", async || enough <= self.pairs.load(Ordering::Relaxed)).await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.running {
            worker.await.expect("a worker");
        }
    }
}

/// The procedure of the manual for a node with damaged data, while clients work. The node refuses to start and names
/// the procedure. A new node is added, started with the printed config and promoted in place of the damaged one. No
/// call fails, and a client that was given only one of the old nodes keeps working when that node is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_node_is_replaced_while_clients_work() {
    let mut cluster = Cluster::start().await;
    let workers = Workers::start(&cluster.client());
    workers.make_progress().await;
    let damaged = cluster.a_follower().await;
    cluster.kill(damaged);
    damage_log(&cluster, damaged);
    cluster.spawn(damaged);
    assert_eq!(cluster.await_end(damaged).await, Some(70), "{}", cluster.log(damaged));
    let log = cluster.log(damaged);
    let last = log.lines().rev().find(|line| line.contains("is damaged at offset")).expect("a line");
    assert!(last.contains("wal") && last.contains("lockkeeper member add"), "{last}");

    let node = added(&cluster);
    assert_eq!(members(&cluster), (vec![1, 2, 3], vec![4]));
    let damaged_id = damaged.to_string();
    let printed = cluster.answer(&["member", "promote", "4", "--instead-of", &damaged_id]);
    let survivors: Vec<u64> = (1..=4).filter(|id| *id != damaged as u64).collect();
    assert_eq!(printed["voters"], serde_json::to_value(&survivors).unwrap());
    assert_eq!(cluster.answer(&["member", "promote", "4", "--instead-of", &damaged_id]), printed, "once more");
    workers.make_progress().await;
    workers.end().await;

    let all_well = |status: &lockkeeper::service::Status| status.nodes.iter().all(|node| node.healthy == Some(true));
    let status = node.status_when(all_well).await;
    assert_eq!(status.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), survivors);
    assert!(status.nodes.iter().all(|node| node.role != Role::Learner));
    let only = usize::try_from(survivors[0]).unwrap();
    let client = Client::connect([cluster.endpoints().swap_remove(only - 1)]).await.expect("connected");
    client.lock("on").acquire().await.expect("free").release().await.expect("released");
    cluster.kill(only);
    client.lock("on").acquire().await.expect("the client knows the other nodes").release().await.expect("released");
}

/// A change that would leave two voters, or that reuses an id, is refused. A leader that is removed transfers
/// leadership, stops with a line that states why, and stops again at each start. Its id cannot be used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_leader_stops_and_unsafe_changes_are_refused() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let id = leader.to_string();
    assert!(refused(&cluster, &["member", "remove", &id]).contains("two voters would be left"));
    let [client, peer] = free_addresses();
    let twice = refused(&cluster, &["member", "add", "3", "--client", &client, "--peer", &peer]);
    assert!(twice.contains("is a member already"), "{twice}");
    let early = run(&cluster, &["member", "promote", "4"]);
    assert_eq!(early.status.code(), Some(64), "{}", String::from_utf8_lossy(&early.stderr));

    let _node = added(&cluster);
    cluster.answer(&["member", "promote", "4"]);
    assert_eq!(members(&cluster), (vec![1, 2, 3, 4], vec![]));
    cluster.answer(&["member", "remove", &id]);
    let rest: Vec<u64> = (1..=4).filter(|node| *node != leader as u64).collect();
    assert_eq!(members(&cluster), (rest, vec![]));
    for start in 0..2 {
        if start == 1 {
            cluster.spawn(leader);
        }
        assert_eq!(cluster.await_end(leader).await, Some(70));
        let line = format!("node {leader} stopped: node {leader} was removed from this cluster");
        assert_eq!(cluster.log(leader).matches(&line).count(), start + 1, "{}", cluster.log(leader));
    }
    let again = refused(&cluster, &["member", "add", &id, "--client", &client, "--peer", &peer]);
    assert!(again.contains("was used before"), "{again}");
    cluster.client().lock("on").acquire().await.expect("the others serve").release().await.expect("released");
}

/// A leader that is replaced transfers leadership and stops. The command succeeds even if that node was the one that
/// was asked, which may stop before it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_replaced() {
    let mut cluster = Cluster::start().await;
    let _node = added(&cluster);
    let leader = cluster.await_leader().await;
    let id = leader.to_string();
    let mut endpoints = cluster.endpoints();
    endpoints.swap(0, leader - 1);
    let leader_first = endpoints.join(",");
    let replace = ["--endpoints", &leader_first, "member", "promote", "4", "--instead-of", &id];
    let printed = cluster.answer(&replace);
    let rest: Vec<u64> = (1..=4).filter(|node| *node != leader as u64).collect();
    assert_eq!(printed["voters"], serde_json::to_value(&rest).unwrap());
    assert_eq!(members(&cluster), (rest, vec![]));
    assert_eq!(cluster.await_end(leader).await, Some(70), "{}", cluster.log(leader));
    cluster.client().lock("on").acquire().await.expect("the others serve").release().await.expect("released");
}
