//! Opening a node: what it refuses, and that nothing runs on after it failed or was given up.

use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::*;
use crate::node::NodeOptions;

fn config() -> Config {
    let text = "cluster = \"harbour\"\nnode = 1\ndata = \"none\"\n[[member]]\nid = 1\n\
                client = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\n";
    Config::from_toml("n1.toml", text, []).expect("a good config")
}

/// Returns options for a node on this disk, and the address of its listener for other nodes.
fn options(disk: &MemoryDisk) -> (NodeOptions, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    (NodeOptions { memory: Some(disk.clone()), peer_listener: Some(listener), ..NodeOptions::default() }, address)
}

async fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Waits until nothing listens at this address.
async fn closed(address: SocketAddr) {
    let closing = async {
        while listens(address).await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), closing).await.expect("the node closes");
}

/// A node whose opening is given up closes, whether it has opened by then or not.
#[tokio::test]
async fn a_node_closes_if_its_opening_is_given_up() {
    for opens_before in [false, true] {
        let disk = MemoryDisk::new(1);
        disk.wal.hold_syncs();
        let (options, address) = options(&disk);
        {
            let mut opening = pin!(Node::open_with(config(), options));
            assert!(poll!(&mut opening).is_pending(), "syncs are held");
            disk.wal.release_syncs();
            while opens_before && disk.wal.state().committed.is_none() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        closed(address).await;
    }
}

/// A node that cannot found its cluster has stopped when its caller gets the error.
#[tokio::test]
async fn a_node_that_cannot_found_its_cluster_stops() {
    let disk = MemoryDisk::new(1);
    disk.wal.fail_next_sync();
    disk.wal.sync(Box::new(drop)).expect("the sync is accepted; it fails later, and so does every write after it");
    let (options, address) = options(&disk);
    let error = Node::open_with(config(), options).await.expect_err("its disk fails");
    let OpenNodeError::Found(why) = &error else { panic!("{error}") };
    assert!(why.contains("injected: the sync failed"), "{why}");
    assert!(!listens(address).await);
}

/// The listener of an application decides whether other machines reach the node, not the address of the config.
#[tokio::test]
async fn a_listener_that_others_reach_needs_protection() {
    let open = async |listener| {
        let options = NodeOptions { ephemeral: true, peer_listener: Some(listener), ..NodeOptions::default() };
        Node::open_with(config(), options).await
    };
    let exposed = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let address = exposed.local_addr().expect("bound").to_string();
    let error = open(exposed).await.expect_err("nothing protects it");
    assert!(matches!(error, OpenNodeError::Exposed(_)) && error.to_string().contains(&address), "{error}");
    let local = TcpListener::bind("127.0.0.1:0").expect("a free port");
    open(local).await.expect("only this machine reaches it").close().await;
}

/// If an address is in use, the error names it.
#[tokio::test]
async fn an_address_in_use_is_named() {
    let used = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut config = config();
    config.listen.peer = used.local_addr().expect("bound");
    let named = format!("cannot listen on {} for the other nodes: ", config.listen.peer);
    let options = NodeOptions { ephemeral: true, ..NodeOptions::default() };
    let error = Node::open_with(config, options).await.expect_err("in use").to_string();
    assert!(error.starts_with(&named), "{error}");
}

/// The directory of a node with the same name and id in a cluster of other founders is not this node's.
#[cfg(feature = "cli")]
#[tokio::test]
async fn a_directory_of_other_founders_is_not_this_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = |peer: u16| {
        let mut config = config();
        config.data = folder.path().join("n1");
        config.members.values_mut().for_each(|member| member.peer = format!("127.0.0.1:{peer}"));
        config
    };
    let peer_listener = Some(TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let options = NodeOptions { peer_listener, ..NodeOptions::default() };
    Node::open_with(config(2), options).await.expect("founded").close().await;
    assert!(examine(&config(2)).expect("this node's").founded);
    let other = examine(&config(3));
    assert!(matches!(other, Err(OpenError::NotOurs { .. })), "{other:?}");
}
