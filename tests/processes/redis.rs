//! The third condition of a Redis lock: it works while most nodes run.

use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::compat::redis_lock::RedisLock;
use lockkeeper::service::ServiceError;

use crate::cluster::{Cluster, TURN};

/// Long enough to be held through everything that happens here.
const EXPIRE: Duration = Duration::from_secs(300);
/// Pairs of lock and unlock, before one node is killed and after.
const ROUNDS: usize = 10;

/// A follower and the leader are killed with -9 while one locks and unlocks: both go on, and what was held before is held
/// still. With two nodes down there is an error, never a yes or a no.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_red_03_any_one_node_is_killed_during_lock_and_unlock() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start().await;
    let lock = RedisLock::new(cluster.client());
    for victim in ["follower", "leader"] {
        assert!(lock.try_get_distributed_lock(victim, "keeper", EXPIRE).await.expect("asked"), "free before");
        let leader = cluster.await_leader().await;
        let node = if victim == "leader" { leader } else { leader % 3 + 1 };
        let working = tokio::spawn({
            let lock = lock.clone();
            async move {
                for round in 0..2 * ROUNDS {
                    let request = format!("request-{round}");
                    let locked = lock.try_get_distributed_lock("busy", &request, EXPIRE).await.expect("lock");
                    assert!(locked, "round {round}: what was unlocked before is free");
                    // Its answer may be lost with the node; asked again, it says that nothing is held any more.
                    lock.release_distributed_lock("busy", &request).await.expect("unlock");
                }
            }
        });
        cluster.kill(node);
        working.await.expect("all rounds");
        assert!(!lock.try_get_distributed_lock(victim, "other", EXPIRE).await.expect("asked"), "still held");
        assert!(!lock.release_distributed_lock(victim, "other").await.expect("asked"), "not by another");
        assert!(lock.release_distributed_lock(victim, "keeper").await.expect("asked"), "by the one who locked");
        cluster.spawn(node);
        cluster.await_leader().await;
    }
    cluster.kill(1);
    cluster.kill(2);
    let refused = [
        lock.try_get_distributed_lock("nobody", "one", EXPIRE).await,
        lock.release_distributed_lock("nobody", "one").await,
    ];
    for answer in refused {
        let unclear =
            matches!(answer, Err(ClientError::Service(ServiceError::NotSent { .. } | ServiceError::Unknown { .. })));
        assert!(unclear, "{answer:?}");
    }
}
