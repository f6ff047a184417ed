//! The stream of a lock's valid tokens, through the death of the leader.

use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use tokio::time::timeout;

use crate::cluster::{Cluster, PATIENCE};

/// A resource that follows a lock at a node that lives on is told of every end and every grant, before and after the leader
/// is killed: never of a token as valid whose end it was told.
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
    let first = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("told");
    assert!(first.all && first.valid.is_empty(), "{first:?}");
    let session = client.session().ttl(PATIENCE * 3).open().await.expect("opened");
    let held = session.lock("followed").acquire().await.expect("free");
    let before = held.token().as_u64();
    let leader = cluster.await_leader().await;
    let told = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("told");
    assert_eq!(told.valid, [before], "{told:?}");
    cluster.kill(leader);
    cluster.await_leader().await;
    held.release().await.expect("still held");
    let next = session.lock("followed").acquire().await.expect("free");
    let after = next.token().as_u64();
    let (mut valid, mut ended) = (vec![before], Vec::new());
    while !valid.contains(&after) {
        let told = timeout(PATIENCE, stream.message()).await.expect("in time").expect("followed").expect("told");
        if told.all {
            ended.extend(valid.drain(..).filter(|token| !told.valid.contains(token)));
        }
        valid.retain(|token| !told.ended.contains(token));
        ended.extend(&told.ended);
        valid.extend(&told.valid);
        assert!(told.valid.iter().all(|token| !ended.contains(token)), "an end was taken back: {told:?}");
    }
    assert_eq!((valid, ended), (vec![after], vec![before]));
    next.release().await.expect("held");
    cluster.spawn(leader);
}
