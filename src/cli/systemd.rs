//! Reports what the node does to systemd, or to another service manager with the same protocol. Does nothing if the
//! environment names no socket of a service manager.

use std::convert::Infallible;
use std::future::pending;

use sd_notify::NotifyState;

use crate::node::Node;
use crate::service::LeaderHint;

/// Reports that the node has started, then each change of the leader, and that the node makes progress if the service
/// manager has a watchdog for this process. Never completes.
pub(super) async fn supervise(node: Node) -> Infallible {
    tokio::select! {
        never = show_leader(&node) => never,
        never = feed_watchdog(&node) => never,
    }
}

async fn show_leader(node: &Node) -> Infallible {
    let mut leader = node.info().leader;
    let first = status(node.id(), leader.borrow_and_update().as_ref());
    notify(&[NotifyState::Ready, NotifyState::Status(&first)]);
    while leader.changed().await.is_ok() {
        let next = status(node.id(), leader.borrow_and_update().as_ref());
        notify(&[NotifyState::Status(&next)]);
    }
    pending().await
}

fn status(node: u64, leader: Option<&LeaderHint>) -> String {
    match leader {
        Some(leader) if leader.node == node => format!("node {node} leads"),
        Some(leader) => format!("node {node} follows node {}", leader.node),
        None => format!("node {node} waits for other nodes: there is no leader with a quorum"),
    }
}

/// Reports twice in the watchdog's time that the node makes progress, and nothing while Raft does not answer.
async fn feed_watchdog(node: &Node) -> Infallible {
    let Some(longest) = sd_notify::watchdog_enabled() else { return pending().await };
    loop {
        tokio::time::sleep(longest / 2).await;
        node.makes_progress().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Does `work`, and reports when it starts and ends, as units of the type `notify-reload` require.
pub(super) fn reloading(work: impl FnOnce()) {
    let begun = NotifyState::monotonic_usec_now().map(|now| notify(&[NotifyState::Reloading, now]));
    work();
    if begun.is_ok() {
        notify(&[NotifyState::Ready]);
    }
}

/// Reports that the node stops.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager was not notified: check NOTIFY_SOCKET");
    }
}
