//! Ends of locks to the millisecond, on a manual clock: a lock is held at its end, and free one millisecond later.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::compat::counter_lock::CounterLock;
use lockkeeper::compat::get_set_lock::{GetSetLock, Swapped};
use lockkeeper::compat::incr_lock::IncrLock;
use lockkeeper::compat::lease_lock::LeaseLock;
use lockkeeper::compat::redis_lock::RedisLock;
use lockkeeper::compat::token_lock::TokenLock;
use lockkeeper::compat::unique_index_lock::UniqueIndexLock;
use lockkeeper::testing::{Cluster, ClusterOptions};

const LEASE: Duration = Duration::from_secs(60);
const LEASE_MS: u64 = 60_000;

/// Each kind of lock with an end is acquired for a minute. Exactly a minute later it is still held, and no other client
/// gets it. A millisecond later it has ended: its holder can neither release nor renew it, and the next client gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_inc_03_r_tok_01_r_tok_06_r_lease_02_r_red_06_w_incr_01_r_gs_01_ends_to_the_millisecond() {
    let clock = Arc::new(ManualClock::new(9));
    let options = ClusterOptions { nodes: 1, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a node");
    let client = Client::new(cluster.leader().await.service()).clock(clock.clone());
    let (counter, other) = (CounterLock::new(client.clone()), CounterLock::new(client.clone()));
    let (tokens, redis, swaps) =
        (TokenLock::new(client.clone()), RedisLock::new(client.clone()), GetSetLock::new(client.clone()));
    let (leases, incr, unique) =
        (LeaseLock::new(client.clone(), LEASE), IncrLock::new(client.clone()), UniqueIndexLock::new(client.clone()));

    assert!(counter.get_lock("counter", LEASE).await.expect("answered"));
    let token = tokens.acquire("token", LEASE).await.expect("answered").expect("free");
    let document = tokens.find("token").await.expect("answered").expect("held");
    assert_eq!(
        (document.deadline.map(|deadline| deadline.ms_since(document.since)), document.token),
        (Some(LEASE_MS), token.fencing)
    );
    assert!(redis.try_get_distributed_lock("redis", "a", LEASE).await.expect("answered"));
    let swapped = swaps.set_nx("swap", LEASE).await.expect("answered").expect("free");
    let lease = leases.take("lease").await.expect("answered").expect("free");
    lease.stop_renewing();
    assert_eq!(incr.incr("incr", LEASE).await.expect("answered").value(), 1);
    let mut record = unique.insert("unique", LEASE).await.expect("answered").expect("free");

    cluster.pass(&clock, LEASE).await.expect("passed");
    assert!(!other.get_lock("counter", LEASE).await.expect("answered"));
    assert_eq!(tokens.acquire("token", LEASE).await.expect("answered"), None);
    assert_eq!(tokens.find("token").await.expect("answered"), Some(document));
    assert!(!redis.try_get_distributed_lock("redis", "b", LEASE).await.expect("answered"));
    assert!(redis.get("redis").await.expect("answered").is_some());
    assert!(matches!(swaps.get_set("swap", LEASE).await.expect("answered"), Swapped::Lost(_)));
    assert!(leases.take("lease").await.expect("answered").is_none());
    assert_eq!(incr.incr("incr", LEASE).await.expect("answered").value(), 2);
    assert!(unique.insert("unique", LEASE).await.expect("answered").is_none());

    cluster.pass(&clock, Duration::from_millis(1)).await.expect("passed");
    assert_eq!(redis.get("redis").await.expect("answered"), None);
    assert!(!redis.release_distributed_lock("redis", "a").await.expect("answered"));
    assert!(!tokens.refresh("token", &token, LEASE).await.expect("answered"));
    assert!(!record.refresh(LEASE).await.expect("answered"));
    assert!(other.get_lock("counter", LEASE).await.expect("answered"));
    assert!(tokens.acquire("token", LEASE).await.expect("answered").is_some());
    assert!(redis.try_get_distributed_lock("redis", "b", LEASE).await.expect("answered"));
    let Swapped::Won(next) = swaps.get_set("swap", LEASE).await.expect("answered") else { panic!("it has ended") };
    assert_eq!(next.until().ms_since(swapped.until()), LEASE_MS + 1);
    assert!(leases.take("lease").await.expect("answered").is_some());
    assert_eq!(incr.incr("incr", LEASE).await.expect("answered").value(), 1);
    assert!(unique.insert("unique", LEASE).await.expect("answered").is_some());
    cluster.close().await;
}
