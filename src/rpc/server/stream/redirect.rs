//! When a node sends its streams to another node, and to which one.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use crate::limits;
use crate::rpc::background::stopped;
use crate::service::{LeaderHint, ServerInfo};

/// Detects when this node should send a stream to another node.
pub(super) struct Redirect {
    node: u64,
    /// Leader when the stream was opened, or this node once it has started to lead.
    leader: Option<LeaderHint>,
    leaders: watch::Receiver<Option<LeaderHint>>,
    stop: watch::Receiver<bool>,
    /// How long the stream stays after another node was elected.
    stay: Duration,
}

impl Redirect {
    /// Creates the redirect of the stream with this number.
    pub(super) fn new(info: &ServerInfo, stop: watch::Receiver<bool>, number: u64) -> Self {
        let mut leaders = info.leader.clone();
        let leader = leaders.borrow_and_update().clone();
        // The factor has no divisor in common with the bound, so streams that were opened together leave apart.
        let stay = Duration::from_millis(number.wrapping_mul(37) % limits::STAY_MS_MAX);
        Self { node: info.node, leader, leaders, stop, stay }
    }

    /// Waits until the node stops, or until the leader under which the stream began leads no longer and another node
    /// leads. Returns the new leader. The client avoids the node that it comes from, so the hint never names this node.
    ///
    /// If all streams left at once, the new leader would have to attach them before it could serve their commands. So
    /// they leave one after another, and this node forwards their commands until then.
    pub(super) async fn due(&mut self) -> Option<LeaderHint> {
        let mut turn: Option<Pin<Box<Sleep>>> = None;
        loop {
            tokio::select! {
                () = stopped(self.stop.clone()) => return self.other_leader(),
                changed = self.leaders.changed() => if changed.is_err() {
                    stopped(self.stop.clone()).await;
                    return self.other_leader();
                },
                Some(()) = OptionFuture::from(turn.as_mut()) => return self.other_leader(),
            }
            let led_by = self.leader.as_ref().map(|leader| leader.node);
            turn = match self.leaders.borrow_and_update().clone() {
                None if led_by == Some(self.node) => return None,
                None => None,
                Some(leader) if [led_by, Some(self.node)].contains(&Some(leader.node)) => {
                    self.leader = Some(leader);
                    None
                }
                Some(_) => Some(Box::pin(sleep(self.stay))),
            };
        }
    }

    fn other_leader(&self) -> Option<LeaderHint> {
        self.leaders.borrow().clone().filter(|leader| leader.node != self.node)
    }
}
