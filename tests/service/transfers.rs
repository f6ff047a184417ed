//! Transfers of leadership while clients work.

use lockkeeper::client::Client;
use lockkeeper::service::{ErrorCode, LockService};
use lockkeeper::testing::Cluster;

use crate::suite::{PATIENT, POLL};

/// A leader serves its callers while it waits for a node that does not answer to be ready for a transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_served_while_a_transfer_waits_for_its_target() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let first = client.lock("nightly").acquire().await.expect("free");
    let target = cluster.follower().await;
    target.close().await;
    let service = leader.service();
    let noticed = async {
        loop {
            let nodes = service.status().await.expect("a status").nodes;
            if nodes.iter().any(|node| node.id == target.id() && node.healthy == Some(false)) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(PATIENT, noticed).await.expect("the leader notices that the node has stopped");

    let transfer = service.transfer(target.id());
    let served = async {
        first.release().await.expect("released");
        client.lock("nightly").acquire().await.expect("free")
    };
    tokio::pin!(transfer);
    let second = tokio::select! {
        biased;
        ended = &mut transfer => panic!("the transfer ended first: {ended:?}"),
        second = served => second,
    };
    let refused = transfer.await.expect_err("the target has stopped");
    assert_eq!(refused.word(), ErrorCode::Invalid, "{refused}");
    second.release().await.expect("released");
    cluster.close().await;
}
