//! How long clients wait for the next leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::client::Session;
use lockkeeper::rpc::RemoteService;
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::cluster::{Cluster, PATIENCE};

/// Longer than any outage, so that no session expires.
pub(crate) const TTL: Duration = Duration::from_secs(60);
pub(crate) const CLIENTS: usize = 64;
/// Time under load between two kills.
const LOAD: Duration = Duration::from_millis(300);

/// The first grant of each client that it asked for after the last kill.
pub(crate) struct Grants {
    pub(crate) killed: Instant,
    pub(crate) first: Vec<Option<Instant>>,
}

/// Acquires and releases a lock of its own until the measurement ends.
pub(crate) async fn contend(session: Session<RemoteService>, number: usize, grants: Arc<watch::Sender<Grants>>) {
    let name = format!("figure-{number}");
    loop {
        let asked = Instant::now();
        let guard = session.lock(&name).acquire().await.expect("granted, now or by the next leader");
        grants.send_if_modified(|grants| {
            let first = grants.killed <= asked && grants.first[number].is_none();
            if first {
                grants.first[number] = Some(Instant::now());
            }
            first
        });
        guard.release().await.expect("released");
    }
}

/// Kills the leader `count` times with SIGKILL under the load of 64 clients, with each timing profile. Measures the
/// time from each kill to the first grant that a client asked for after it, and until each client had such a grant.
pub(crate) async fn kills(count: usize) {
    for profile in ["lan", "fast", "wan"] {
        let (mut next, mut last) = kills_with(Cluster::start_with(profile).await, count).await;
        eprintln!("{profile}: leader killed {count} times under {CLIENTS} clients");
        eprintln!("  next grant after          {}", figures(&mut next));
        eprintln!("  last client served after  {}", figures(&mut last));
    }
}

/// Returns the times until the next grant, and until the last client was served.
pub(crate) async fn kills_with(mut cluster: Cluster, count: usize) -> (Vec<Duration>, Vec<Duration>) {
    let grants = Arc::new(watch::Sender::new(Grants { killed: Instant::now(), first: vec![None; CLIENTS] }));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let session = cluster.client().session().ttl(TTL).open().await.expect("a session");
        clients.spawn(contend(session, number, Arc::clone(&grants)));
    }
    let (mut next, mut last) = (Vec::new(), Vec::new());
    for _ in 0..count {
        sleep(LOAD).await;
        let leader = cluster.await_leader().await;
        let killed = Instant::now();
        grants.send_replace(Grants { killed, first: vec![None; CLIENTS] });
        block_in_place(|| cluster.kill(leader));
        let mut seen = grants.subscribe();
        let all = seen.wait_for(|grants| grants.first.iter().all(Option::is_some));
        let all = tokio::time::timeout(PATIENCE, all).await.expect("all clients are served").expect("a sender");
        next.extend(all.first.iter().flatten().min().map(|got| *got - killed));
        last.extend(all.first.iter().flatten().max().map(|got| *got - killed));
        drop(all);
        cluster.spawn(leader);
        cluster.status_when(leader, |status| status.leader.is_some()).await;
    }
    clients.shutdown().await;
    (next, last)
}

pub(crate) fn figures(waited: &mut [Duration]) -> String {
    waited.sort();
    let part = |hundredths: usize| waited[(waited.len() * hundredths).div_ceil(100).max(1) - 1].as_millis();
    format!("p50 {} ms, p95 {} ms, p99 {} ms, max {} ms", part(50), part(95), part(99), part(100))
}
