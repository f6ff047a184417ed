//! The cost of the connection to the cluster: the same pairs of acquire and release embedded in the leader and through
//! gRPC, with three nodes in this process whose logs are in the directory for temporary files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::client::{Client, Session};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::LockService;
use lockkeeper::testing::Cluster;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::timer::Timer;

/// Numbers of concurrent clients, each with a separate session and lock.
const CLIENTS: [u64; 2] = [1, 64];
/// Pairs that each client makes in a row, so that the wait for the slowest client at the end has little effect.
const PAIRS: u64 = 20;

/// Measures pairs of an application that embeds the leader, and of clients with one connection each.
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
    assert!(leader.leads(), "the figures are invalid: another node leads now");
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

/// How long it takes until each client has made this many pairs.
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
