//! When a node sends its streams away, and where to.

use tokio::sync::watch;

use crate::service::{LeaderHint, ServerInfo};

/// When this node should send its streams away.
pub(super) struct Redirect {
    node: u64,
    /// Who led when the stream was opened; this node, once it came to lead afterwards.
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

    /// Waits until the node stops, or the leadership that the stream began under is over and not this node's now, and tells
    /// who leads. A client that is sent away avoids the node that it comes from: with the leader's it would go astray.
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

/// Waits for the stop signal; a vanished sender is one.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}
