//! How long clients wait for the next leader.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::cluster::{Cluster, PATIENCE};

/// Longer than any round, so that the session does not expire.
const TTL: Duration = Duration::from_secs(60);

/// Kills the leader `count` times with SIGKILL, with the `lan` profile. Measures the time from each kill to the next
/// grant to a connected client.
pub(crate) async fn kills(count: usize) {
    let mut cluster = Cluster::start_with("lan").await;
    let session = cluster.client().session().ttl(TTL).open().await.expect("a session");
    let mut waited = Vec::new();
    for _ in 0..count {
        let leader = cluster.await_leader().await;
        cluster.kill(leader);
        let killed = Instant::now();
        let guard = session.lock("figure").acquire().await.expect("granted by the next leader");
        waited.push(killed.elapsed());
        guard.release().await.expect("released");
        cluster.spawn(leader);
        let started = Instant::now();
        while cluster.status_of(leader).await.is_none_or(|status| status.leader.is_none()) {
            assert!(started.elapsed() < PATIENCE, "node {leader} does not come back\n{}", cluster.log(leader));
            sleep(Duration::from_millis(20)).await;
        }
    }
    waited.sort();
    let part = |hundredths: usize| waited[(waited.len() * hundredths).div_ceil(100).max(1) - 1].as_millis();
    let max = part(100);
    eprintln!("leader killed {count} times: next grant after p50 {} ms, p99 {} ms, max {max} ms", part(50), part(99));
}
