//! Handing leadership over: asked for, before a planned stop, or because this node's clock lost too much time.

use std::time::Duration;

use super::Node;
use crate::model::Invalid;
use crate::raft::ProposeError;
use crate::service::{NotSent, ServiceError};

impl Node {
    /// Hands leadership to another node, and answers once that node leads. Log time stands still meanwhile.
    ///
    /// Only a node that acknowledged within two heartbeats and has the whole log is chosen: handing over to a dead
    /// node would cost a full election.
    pub(super) async fn transfer_here(&self, to: u64) -> Result<(), ServiceError> {
        if to == self.core.id {
            return Ok(());
        }
        if !self.can_take_over(to) {
            let bound = "a node that answers the leader and has the whole log; `lockkeeper status` shows which";
            return Err(Invalid::new("node", bound, format!("{to}, which does not")).into());
        }
        self.core.lanes.pause();
        let handed = self.hand_to(to).await;
        if handed.is_err() {
            self.core.lanes.go_on(self.core.clock.now());
        }
        handed
    }

    async fn hand_to(&self, to: u64) -> Result<(), ServiceError> {
        match self.core.consensus.transfer(to).await {
            Ok(()) => Ok(()),
            Err(ProposeError::NotSent { .. }) => Err(self.not_sent(NotSent::NoLeader)),
            Err(ProposeError::Stopped) => Err(ServiceError::Stopping),
            Err(ProposeError::Unknown(why)) => Err(ServiceError::unknown(why)),
        }
    }

    fn can_take_over(&self, node: u64) -> bool {
        let heard_within = Duration::from_millis(2 * self.core.settings.timing_ms[0]);
        self.core.consensus.watch().borrow().can_take_over(node, heard_within)
    }

    /// The node that is readiest to take over: it answers, and has the whole log.
    pub(super) fn successor(&self) -> Option<u64> {
        self.core.members.keys().copied().find(|node| self.can_take_over(*node))
    }

    /// Hands over to whoever can take over; a node that leads nobody has nothing to hand over.
    pub(super) async fn step_aside(&self) {
        if !self.leads() {
            return;
        }
        // A follower is at the end of the log only between two entries: while calls come in, wait for such a moment.
        for _ in 0..crate::limits::STEP_ASIDE_TRIES {
            if let Some(to) = self.successor() {
                match self.transfer_here(to).await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(node = self.core.id, to, %error, "could not hand leadership over"),
                }
            }
            tokio::time::sleep(Duration::from_millis(crate::limits::RETRY_MS_MIN)).await;
        }
    }
}
