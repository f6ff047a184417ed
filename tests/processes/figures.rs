//! Measurements of how long failures delay clients. They print figures; `LOCKKEEPER_FIGURES` sets their size. For
//! example, `LOCKKEEPER_FIGURES=50 cargo test --test processes figures_of_a -- --nocapture` kills the leader fifty
//! times. Without the variable it is killed twice, to check the measurement itself.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::cluster::{Cluster, PATIENCE, TURN};

const ROUNDS_DEFAULT: usize = 2;
/// Longer than any round, so that the session does not expire.
const TTL: Duration = Duration::from_secs(60);

/// The size of a measurement, from `LOCKKEEPER_FIGURES`. Without it a long measurement is skipped.
pub(crate) fn wanted() -> Option<usize> {
    let size = std::env::var("LOCKKEEPER_FIGURES").ok().and_then(|size| size.parse().ok());
    if size.is_none() {
        eprintln!("skipped: a long measurement, which runs only with LOCKKEEPER_FIGURES=SIZE");
    }
    size
}

/// Measures the time from SIGKILL of the leader, with the `lan` profile, to the next grant to a connected client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_a_killed_leader() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_with("lan").await;
    let session = cluster.client().session().ttl(TTL).open().await.expect("a session");
    let mut waited = Vec::new();
    for _ in 0..wanted().unwrap_or(ROUNDS_DEFAULT).max(1) {
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
    let (count, max) = (waited.len(), part(100));
    eprintln!("leader killed {count} times: next grant after p50 {} ms, p99 {} ms, max {max} ms", part(50), part(99));
}
