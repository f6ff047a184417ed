//! Disconnect grace with real processes and connections: a killed holder is detected by its broken stream, and a stream
//! that reconnects in time loses no lock.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::client::{Client, HoldState};
use lockkeeper::model::TokenState;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::{Cluster, PATIENCE};
use crate::wait::wait_until;

/// Far longer than any wait in these tests, so that nothing here ends because of the TTL.
const TTL: Duration = Duration::from_secs(120);

/// A holder with a disconnect grace that is killed with SIGKILL frees its lock long before its TTL.
#[tokio::test]
async fn a_killed_holder_with_a_grace_frees_the_lock_within_it() {
    let cluster = Cluster::start().await;
    let ready = cluster.folder().join("ready");
    let script = format!("echo ready > {}; exec sleep 600", ready.display());
    let ttl = humantime::format_duration(TTL).to_string();
    let arguments = ["lock", "fragile", "--ttl", &ttl, "--disconnect-grace", "2s", "--", "sh", "-c", &script];
    let mut holder = cluster.command(&arguments).stdin(Stdio::null()).spawn().expect("a holder");
    wait_until("the command starts", async || fs::read_to_string(&ready).is_ok_and(|text| text == "ready\n")).await;
    let client = cluster.client();
    let token = client.inspect("fragile").await.expect("inspected").value.holders[0].token;
    holder.kill().expect("killed");
    holder.wait().expect("ended");
    let next = tokio::time::timeout(PATIENCE, client.lock("fragile").acquire()).await;
    let next = next.expect("freed by the grace, long before the TTL").expect("granted");
    assert!(token < next.token());
    next.release().await.expect("released");
}

/// A TCP proxy to one node that can be closed.
struct Proxy {
    address: String,
    open: watch::Sender<bool>,
}

impl Proxy {
    async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let (target, mut is_open) = (target.clone(), is_open.clone());
                tokio::spawn(async move {
                    if !*is_open.borrow() {
                        return;
                    }
                    let Ok(mut there) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        _ = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { address, open }
    }
}

/// A stream that breaks for good while its client lives is attached again over another node, and the holder loses no
/// lock: long after the grace it holds the lock with the same token. Without a new stream the session ends with the
/// grace, as [`a_killed_holder_with_a_grace_frees_the_lock_within_it`] shows.
#[tokio::test]
async fn a_broken_stream_attaches_again_and_keeps_the_lock() {
    let grace = Duration::from_secs(3);
    let cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let proxy = Proxy::to(cluster.endpoints().swap_remove(leader - 1)).await;
    let client = Client::connect([proxy.address.clone()]).await.expect("a client");
    let session = client.session().ttl(TTL).disconnect_grace(grace).open().await.expect("a session");
    let guard = session.lock("kept").acquire().await.expect("free");

    proxy.open.send_replace(false);
    let observer = cluster.client();
    let broken = observer.totals().await.expect("totals").now;
    let after = broken.after_ms(2 * grace.as_millis() as u64);
    wait_until("log time passes the grace", async || after <= observer.totals().await.expect("totals").now).await;
    let sessions = observer.all_sessions().await.expect("listed").value;
    let [session] = &sessions[..] else { panic!("one session, not {sessions:?}") };
    assert!(!session.disconnected);
    assert_ne!(guard.state(), HoldState::Lost);
    assert_eq!(observer.check("kept", guard.token()).await.expect("checked").state, TokenState::Valid);
    guard.release().await.expect("still held");
}
