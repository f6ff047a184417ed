//! Clients that can reach two real clusters, for example because of a mistake in a list of endpoints.

use std::time::Duration;

use lockkeeper::client::{Client, ClientError, HoldState};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{ErrorCode, LockService};
use lockkeeper::testing::Cluster;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::suite::{LONG, POLL};

/// Starts a cluster of one node.
async fn single_node() -> Cluster {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    cluster.leader().await;
    cluster
}

async fn id_of(cluster: &Cluster) -> u128 {
    cluster.leader().await.service().status().await.expect("its status").cluster_id.expect("founded")
}

/// Returns the number of grants of a cluster.
async fn grants(cluster: &Cluster) -> u64 {
    Client::new(cluster.leader().await.service()).totals().await.expect("totals").value.grants
}

fn settings(cluster: Option<u128>, endpoints: impl IntoIterator<Item = String>) -> RemoteSettings {
    RemoteSettings { cluster, ..RemoteSettings::new(endpoints) }
}

/// Two clients have endpoints of two clusters in their lists, in different order. Neither gets a lock. With the id of
/// one cluster, one client gets the lock, and the other cluster grants nothing.
#[tokio::test]
async fn a_lock_is_granted_in_one_cluster_only() {
    let (one, other) = (single_node().await, single_node().await);
    let mixed = [one.endpoints()[0].clone(), other.endpoints()[0].clone()];
    let reversed = [mixed[1].clone(), mixed[0].clone()];
    let (id, other_id) = (id_of(&one).await, id_of(&other).await);
    assert_ne!(id, other_id);
    for endpoints in [&mixed, &reversed] {
        let refused = Client::connect(endpoints.clone()).await.expect_err("the endpoints are of two clusters");
        let message = refused.to_string();
        assert_eq!(refused.code(), ErrorCode::Invalid);
        assert!([id, other_id].iter().all(|id| message.contains(&format!("{id:032x}"))), "{message}");
    }
    let first = Client::connect_with(settings(Some(id), mixed)).await.expect("connected");
    let second = Client::connect_with(settings(Some(id), reversed)).await.expect("connected");
    let guard = first.lock("nightly").acquire().await.expect("free");
    let held = second.lock("nightly").try_once().acquire().await.expect_err("held");
    assert!(matches!(held, ClientError::NotAcquired { .. }), "{held:?}");
    guard.release().await.expect("released");
    assert_eq!((grants(&one).await, grants(&other).await), (1, 0));
}

/// Starts a TCP proxy to an address that can change. A change ends all connections. Returns the proxy's address.
async fn proxy(target: watch::Receiver<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let mut target = target.clone();
            let to = target.borrow_and_update().clone();
            tokio::spawn(async move {
                let Ok(mut there) = TcpStream::connect(to).await else { return };
                tokio::select! {
                    _ = copy_bidirectional(&mut here, &mut there) => {}
                    _ = target.changed() => {}
                }
            });
        }
    });
    address
}

/// The node at a known endpoint is replaced by a node of another cluster, which knows neither the session nor its lock.
/// Its answers do not end the hold: the session is renewed over the other endpoint for longer than its TTL.
#[tokio::test]
async fn a_hold_survives_a_foreign_node_at_a_known_endpoint() {
    let (own, foreign) = (single_node().await, single_node().await);
    let (redirect, target) = watch::channel(own.endpoints()[0].clone());
    let endpoints = [proxy(target).await, own.endpoints()[0].clone()];
    let client = Client::connect_with(settings(None, endpoints)).await.expect("connected");
    // Longer than a slow machine stalls.
    let ttl = Duration::from_secs(3);
    let session = client.session().ttl(ttl).open().await.expect("opened");
    let guard = session.lock("held").acquire().await.expect("free");

    redirect.send_replace(foreign.endpoints()[0].clone());
    let embedded = Client::new(own.leader().await.service());
    let log_time = async || embedded.status().await.expect("its status").log_time;
    let redirected = log_time().await;
    while log_time().await.ms_since(redirected) <= u64::try_from((ttl * 3 / 2).as_millis()).expect("short") {
        assert_ne!(guard.state(), HoldState::Lost);
        tokio::time::sleep(POLL).await;
    }
    let holders = embedded.inspect("held").await.expect("inspected").value.holders;
    assert_eq!(holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [guard.token()]);
    guard.release().await.expect("released");
    assert_eq!(grants(&foreign).await, 0);
}

/// If another cluster answers at all endpoints, for example after a restore, an open session is not reported as ended.
/// Its client asks for a restart, and a new client is served.
#[tokio::test]
async fn a_client_of_a_replaced_cluster_must_restart() {
    let (old, new) = (single_node().await, single_node().await);
    let (redirect, target) = watch::channel(old.endpoints()[0].clone());
    let endpoint = proxy(target).await;
    let client = Client::connect_with(settings(None, [endpoint.clone()])).await.expect("connected");
    let client: Client<RemoteService> = client.request_wait(Duration::from_millis(500));
    let session = client.session().ttl(LONG).open().await.expect("opened");
    let guard = session.lock("held").acquire().await.expect("free");

    let (old_id, old_grants) = (id_of(&old).await, grants(&old).await);
    redirect.send_replace(new.endpoints()[0].clone());
    // The client has learned the old node's own address, so that node must be closed.
    old.close().await;
    let asked = [
        client.inspect("held").await.map(drop).expect_err("another cluster"),
        client.lease("other").take().await.map(drop).expect_err("another cluster"),
        session.client().lock("other").try_once().acquire().await.map(drop).expect_err("another cluster"),
    ];
    for error in asked {
        let message = error.to_string();
        assert_eq!(error.code(), ErrorCode::Unreachable, "{message}");
        assert!(message.contains(&format!("{old_id:032x}")) && message.contains("start again"), "{message}");
    }
    assert_ne!(guard.state(), HoldState::Lost);
    let again = Client::connect([endpoint]).await.expect("connected");
    again.lock("held").acquire().await.expect("free").release().await.expect("released");
    assert_eq!((old_grants, grants(&new).await), (1, 1));
    drop(guard);
}
