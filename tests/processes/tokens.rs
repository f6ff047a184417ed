//! The stream of a lock's valid tokens while the leader dies.

use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use tokio::time::timeout;

use crate::cluster::{Cluster, PATIENCE};

/// A follower's stream of tokens reports every end and every grant, before and after the leader is killed. It never
/// reports a token as valid after it reported the token's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokens_of_a_lock_are_followed_through_a_leader_kill() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.a_follower().await;
    let client = cluster.client().request_wait(PATIENCE);
    let address = format!("http://{}", cluster.endpoints()[follower - 1]);
    let mut locks = LocksClient::connect(address).await.expect("connected");
    let lock = pb::LockKey { namespace: String::new(), name: "followed".to_owned() };
    let request = pb::WatchTokensRequest { lock: Some(lock) };
    let mut stream = locks.watch_tokens(request).await.expect("a stream").into_inner();
    let first = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("an update");
    assert!(first.all && first.valid.is_empty(), "{first:?}");
    let session = client.session().ttl(PATIENCE * 3).open().await.expect("opened");
    let held = session.lock("followed").acquire().await.expect("free");
    let before = held.token().as_u64();
    let leader = cluster.await_leader().await;
    let update = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("an update");
    assert_eq!(update.valid, [before], "{update:?}");
    cluster.kill(leader);
    cluster.await_leader().await;
    held.release().await.expect("still held");
    let next = session.lock("followed").acquire().await.expect("free");
    let after = next.token().as_u64();
    let (mut valid, mut ended) = (vec![before], Vec::new());
    while !valid.contains(&after) {
        let update = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("an update");
        if update.all {
            ended.extend(valid.drain(..).filter(|token| !update.valid.contains(token)));
        }
        valid.retain(|token| !update.ended.contains(token));
        ended.extend(&update.ended);
        valid.extend(&update.valid);
        assert!(update.valid.iter().all(|token| !ended.contains(token)), "an ended token is valid again: {update:?}");
    }
    assert_eq!((valid, ended), (vec![after], vec![before]));
    next.release().await.expect("held");
    cluster.spawn(leader);
}
