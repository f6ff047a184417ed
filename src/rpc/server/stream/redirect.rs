//! When a node sends its streams to another node, and to which one.

use tokio::sync::watch;

use crate::service::{LeaderHint, ServerInfo};

/// Detects when this node should send a stream to another node.
pub(super) struct Redirect {
    node: u64,
    /// Leader when the stream was opened, or this node once it has started to lead.
    leader: Option<LeaderHint>,
    leaders: watch::Receiver<Option<LeaderHint>>,
    stop: watch::Receiver<bool>,
}

impl Redirect {
    pub(super) fn new(info: &ServerInfo, stop: watch::Receiver<bool>) -> Self {
        let mut leaders = info.leader.clone();
        let leader = leaders.borrow_and_update().clone();
        Self { node: info.node, leader, leaders, stop }
    }

    /// Waits until the node stops, or until the leader under which the stream began leads no longer and another node
    /// leads. Returns the new leader. The client avoids the node that it comes from, so the hint never names this node.
    pub(super) async fn due(&mut self) -> Option<LeaderHint> {
        loop {
            let changed = tokio::select! {
                () = stopped(&mut self.stop) => None,
                changed = self.leaders.changed() => Some(changed),
            };
            match changed {
                None => return self.other_leader(),
                Some(Ok(())) => {}
                Some(Err(_)) => {
                    stopped(&mut self.stop).await;
                    return self.other_leader();
                }
            }
            let now = self.leaders.borrow_and_update().clone();
            let same = now.as_ref().map(|leader| leader.node) == self.leader.as_ref().map(|leader| leader.node);
            let here = now.as_ref().is_some_and(|leader| leader.node == self.node);
            let led_here = self.leader.as_ref().is_some_and(|leader| leader.node == self.node);
            if same || here || (now.is_none() && !led_here) {
                self.leader = now.or(self.leader.take());
                continue;
            }
            return now;
        }
    }

    fn other_leader(&self) -> Option<LeaderHint> {
        self.leaders.borrow().clone().filter(|leader| leader.node != self.node)
    }
}

/// Waits for the stop signal, or until its sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}
