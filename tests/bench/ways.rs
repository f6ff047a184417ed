//! What the way to the cluster costs: the same pairs of acquire and release embedded on the leader and through gRPC, on
//! three nodes in this process with their logs on the disk of the folder for temporary files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::client::{Client, Session};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::LockService;
use lockkeeper::testing::Cluster;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::timer::Timer;

/// So many at once, each with a session and a lock of its own.
const CLIENTS: [u64; 2] = [1, 64];
/// Pairs that each makes in a row, so that few of them wait for the last one's last.
const PAIRS: u64 = 20;

/// Pairs by an application that embeds the leader, and by one that reaches it over a connection for each client.
pub(crate) fn embedded_and_remote(timer: &Timer) {
    if !timer.wants("pairs/") {
        return;
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a folder");
    let started = Cluster::start(3, Some(directory.path()));
    let cluster = runtime.block_on(started).expect("a cluster");
    let leader = runtime.block_on(cluster.leader());
    for clients in CLIENTS {
        measure(timer, &runtime, "embedded", clients, || Client::new(leader.service()));
        measure(timer, &runtime, "remote", clients, || {
            let settings = RemoteSettings::new(cluster.endpoints().to_vec());
            Client::new(RemoteService::new(settings).expect("endpoints"))
        });
    }
    assert!(leader.leads(), "the figures tell nothing: another node leads now");
    runtime.block_on(cluster.close());
}

fn measure<S: LockService>(timer: &Timer, runtime: &Runtime, way: &str, clients: u64, client: impl Fn() -> Client<S>) {
    let open = async |_| client().session().open().await.expect("a session");
    let sessions: Vec<Session<S>> =
        runtime.block_on(async { futures_util::future::join_all((0..clients).map(open)).await });
    let sessions = Arc::new(sessions);
    timer.measure(&format!("pairs/{way}, {clients} clients"), clients * PAIRS, |rounds| {
        runtime.block_on(pairs(&sessions, rounds * PAIRS))
    });
}

/// How long it takes until each has made so many pairs.
async fn pairs<S: LockService>(sessions: &[Session<S>], each: u64) -> Duration {
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for (client, session) in sessions.iter().cloned().enumerate() {
        working.spawn(async move {
            for _ in 0..each {
                let guard = session.lock(format!("bench/{client}").as_str()).acquire().await.expect("granted");
                guard.release().await.expect("released");
            }
        });
    }
    working.join_all().await;
    begun.elapsed()
}
