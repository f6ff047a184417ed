//! Everything that was acknowledged survives when nodes are killed, stopped and restarted.

use std::fs;
use std::time::{Duration, Instant};

use lockkeeper::client::{Client, HoldState};
use lockkeeper::model::LockView;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{LockService, Operation};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::wait::wait_for;

const POLL: Duration = Duration::from_millis(20);

async fn seen(client: &Client<RemoteService>, name: &str) -> LockView {
    wait_for(format_args!("{name} can be inspected"), async || client.inspect(name).await).await.value
}

async fn await_waiters(client: &Client<RemoteService>, name: &str, waiters: usize) -> Vec<u64> {
    wait_for(format_args!("{waiters} waiters of {name}"), async || {
        let places: Vec<_> = seen(client, name).await.waiters.iter().map(|waiter| waiter.sequence).collect();
        if places.len() == waiters { Ok(places) } else { Err(places) }
    })
    .await
}

/// First the leader is killed, then two nodes, then all three. The holder keeps its lock under the same token, waiters
/// keep their places, what was released stays released, and new tokens are larger than all tokens before.
#[tokio::test]
async fn nothing_acknowledged_is_lost_when_any_number_of_nodes_is_killed() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
    let held = session.lock("held").acquire().await.expect("free");
    session.lock("released").acquire().await.expect("free").release().await.expect("released");
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let request = session.lock("held");
            tokio::spawn(async move { request.acquire().await })
        })
        .collect();
    let places = await_waiters(&client, "held", 3).await;
    for killed in [1, 2, 3] {
        let leader = cluster.await_leader().await;
        let mut nodes = vec![leader];
        nodes.extend((1..=3).filter(|node| *node != leader));
        nodes.truncate(killed);
        for node in &nodes {
            cluster.kill(*node);
        }
        for node in &nodes {
            cluster.spawn(*node);
        }
        cluster.await_leader().await;
        let view = seen(&client, "held").await;
        assert_eq!(view.holders.iter().map(|h| h.token).collect::<Vec<_>>(), [held.token()], "{killed} killed");
        assert_eq!(view.waiters.iter().map(|w| w.sequence).collect::<Vec<_>>(), places, "{killed} killed");
        assert!(seen(&client, "released").await.holders.is_empty(), "{killed} killed");
    }
    let mut last = held.token();
    held.release().await.expect("released");
    for waiter in waiters {
        let guard = waiter.await.expect("a task").expect("granted");
        assert!(last < guard.token(), "a token did not grow");
        last = guard.token();
        guard.release().await.expect("released");
    }
}

/// With two nodes down the third grants nothing, and the command exits with 69. Once a second node is back, locks are
/// granted again.
#[tokio::test]
async fn a_minority_grants_nothing() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let down: Vec<_> = (1..=3).filter(|node| *node != leader).collect();
    for node in &down {
        cluster.kill(*node);
    }
    let output =
        cluster.command(&["lock", "-n", "mute", "--timeout", "2s", "--json", "--", "true"]).output().expect("ran");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    cluster.spawn(down[0]);
    cluster.await_leader().await;
    let status = cluster.command(&["lock", "mute", "--", "true"]).status().expect("ran");
    assert!(status.success());
}

/// A node that receives SIGTERM transfers leadership before it stops: clients that work meanwhile see no error, and the
/// process exits with 0.
#[tokio::test]
async fn a_planned_stop_fails_no_call() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (client, stopped) = (client.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut pairs = 0;
                while !*stopped.borrow() {
                    let guard = client.lock(&format!("w{worker}")).acquire().await.expect("no call fails");
                    guard.release().await.expect("no call fails");
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    for _ in 0..3 {
        let leader = cluster.await_leader().await;
        assert_eq!(cluster.stop(leader), Some(0), "{}", cluster.log(leader));
        let next = cluster.await_leader().await;
        assert_ne!(next, leader);
        cluster.spawn(leader);
        cluster.await_answer(leader).await;
    }
    stop.send_replace(true);
    for worker in workers {
        assert!(worker.await.expect("a worker") > 0);
    }
}

/// A transfer to a node that is stopped and then killed returns an error, even if the third node takes over, and the
/// cluster keeps serving.
#[tokio::test]
async fn a_transfer_to_a_node_that_dies_fails() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    for _ in 0..3 {
        let leader = cluster.await_leader().await;
        let target = leader % 3 + 1;
        cluster.signal(target, Signal::STOP);
        let moved = client.service().operate(Operation::Transfer(target as u64)).await;
        assert!(moved.is_err(), "a stopped node cannot lead");
        cluster.kill(target);
        client.lock("served").acquire().await.expect("two nodes serve").release().await.expect("released");
        cluster.spawn(target);
        cluster.await_answer(target).await;
    }
}

/// A leader that is stopped for longer than a TTL ends no session when it continues. The holder keeps its lock through
/// the other two nodes.
#[tokio::test]
async fn a_leader_that_was_stopped_ends_no_session() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(2)).open().await.expect("a session");
    let guard = session.lock("awake").acquire().await.expect("free");
    let leader = cluster.await_leader().await;
    cluster.signal(leader, Signal::STOP);
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(4) {
        assert_ne!(guard.state(), HoldState::Lost, "after {:?}", stopped.elapsed());
        tokio::time::sleep(POLL).await;
    }
    cluster.signal(leader, Signal::CONT);
    cluster.await_answer(leader).await;
    let view = seen(&client, "awake").await;
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [guard.token()]);
    guard.release().await.expect("still held");
}

/// A damaged mirror is rebuilt automatically. With a flipped byte in its log the node refuses to start and names the
/// file, and the other two nodes keep serving.
#[tokio::test]
async fn a_damaged_mirror_is_rebuilt_and_a_damaged_log_is_refused() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    for number in 0..50 {
        client.lock(&format!("n{number}")).acquire().await.expect("free").release().await.expect("released");
    }
    let node = cluster.a_follower().await;
    assert_eq!(cluster.stop(node), Some(0));
    let data = cluster.folder().join(format!("n{node}"));
    let mirror = data.join("state").join("db");
    let mut bytes = fs::read(&mirror).expect("a mirror");
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..] {
        *byte ^= 0x5a;
    }
    fs::write(&mirror, bytes).expect("damaged");
    cluster.spawn(node);
    cluster.await_answer(node).await;
    assert_eq!(cluster.stop(node), Some(0));
    let files = fs::read_dir(data.join("wal")).expect("a log").map(|entry| entry.expect("a file").path());
    let log = files.max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len())).expect("a file");
    let mut bytes = fs::read(&log).expect("a log");
    let early = bytes.len() / 4;
    bytes[early] ^= 1;
    fs::write(&log, bytes).expect("damaged");
    cluster.spawn(node);
    assert_eq!(cluster.await_end(node).await, Some(70), "{}", cluster.log(node));
    let stderr = cluster.log(node);
    assert!(stderr.contains("wal"), "{stderr}");
    client.lock("on").acquire().await.expect("the others serve").release().await.expect("released");
}
