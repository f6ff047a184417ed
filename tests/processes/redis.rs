//! The third condition of a Redis lock: it works while a majority of nodes runs.

use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::compat::redis_lock::RedisLock;
use lockkeeper::service::ServiceError;

use crate::cluster::{Cluster, TURN};

/// Long enough not to expire during the test.
const EXPIRE: Duration = Duration::from_secs(300);
/// Half of the pairs of lock and unlock for each killed node. Pairs are in progress during the kill and after it.
const ROUNDS: usize = 10;

/// A follower and then the leader are killed with SIGKILL while a client locks and unlocks. The client continues, and a
/// lock that was held before is still held. With two nodes down every call is an error, never true or false.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_red_03_any_one_node_is_killed_during_lock_and_unlock() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start().await;
    let lock = RedisLock::new(cluster.client());
    for victim in ["follower", "leader"] {
        assert!(lock.try_get_distributed_lock(victim, "holder", EXPIRE).await.expect("asked"), "free before");
        let leader = cluster.await_leader().await;
        let node = if victim == "leader" { leader } else { leader % 3 + 1 };
        let working = tokio::spawn({
            let lock = lock.clone();
            async move {
                for round in 0..2 * ROUNDS {
                    let request = format!("request-{round}");
                    let locked = lock.try_get_distributed_lock("busy", &request, EXPIRE).await.expect("lock");
                    assert!(locked, "round {round}: what was unlocked before is free");
                    // The answer may be lost with the node; the repeated request then reports that nothing is held.
                    lock.release_distributed_lock("busy", &request).await.expect("unlock");
                }
            }
        });
        cluster.kill(node);
        working.await.expect("all rounds");
        assert!(
            !lock.try_get_distributed_lock(victim, "other", EXPIRE).await.expect("asked"),
            "the lock is still held"
        );
        assert!(
            !lock.release_distributed_lock(victim, "other").await.expect("asked"),
            "another client must not release it"
        );
        assert!(lock.release_distributed_lock(victim, "holder").await.expect("asked"), "its holder releases it");
        cluster.spawn(node);
        cluster.await_leader().await;
    }
    cluster.kill(1);
    cluster.kill(2);
    let refused = [
        lock.try_get_distributed_lock("unavailable", "one", EXPIRE).await,
        lock.release_distributed_lock("unavailable", "one").await,
    ];
    for answer in refused {
        let unclear =
            matches!(answer, Err(ClientError::Service(ServiceError::NotSent { .. } | ServiceError::Unknown { .. })));
        assert!(unclear, "{answer:?}");
    }
}
