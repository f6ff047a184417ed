//! Transfers of leadership: requested by an operator, before a planned stop, or because this node's clock lost too much
//! time.

use std::time::Duration;

use crate::limits;
use crate::model::Invalid;
use crate::node::Node;
use crate::node::core::Core;
use crate::raft::View;
use crate::service::{NotSent, ServiceError};

impl Node {
    /// Transfers leadership to another node, and returns once that node leads. Log time does not advance meanwhile.
    ///
    /// Only a node that answered within two heartbeats and has the whole log is eligible: a transfer to a dead node
    /// would cost a full election.
    pub(in crate::node) async fn transfer_here(&self, to: u64) -> Result<(), ServiceError> {
        let members = self.core.members();
        if !members.contains_key(&to) {
            let known: Vec<_> = members.keys().collect();
            return Err(Invalid::new("node", format!("one of {known:?}"), to).into());
        }
        if to == self.core.id {
            return Ok(());
        }
        let view = self.core.consensus.watch().borrow().clone();
        if view.members.get(&to).is_some_and(|member| !member.voter) {
            let bound = "a voter; `lockkeeper member promote` gives a learner a vote";
            return Err(Invalid::new("node", bound, format!("{to}, which is a learner")).into());
        }
        // A change of the members would be left half-way.
        let Ok(_no_change) = self.core.changing_members.try_read() else {
            return Err(self.not_sent(NotSent::OVERLOADED));
        };
        self.transfer_to_one_of(&[to]).await.unwrap_or_else(|| {
            let bound = "a node that answers the leader and has the whole log; `lockkeeper status` shows which";
            Err(Invalid::new("node", bound, format!("{to}, which does not")).into())
        })
    }

    /// Transfers leadership to any eligible node, so that a planned stop costs no failover. Does nothing if this node
    /// does not lead or is the only voter. First waits until no change of the members is in progress, because a
    /// transfer would leave the change half-way. After [`limits::CLOSE_WAIT_MS`] milliseconds it transfers leadership
    /// all the same.
    pub async fn hand_over(&self) {
        if !self.leads() {
            return;
        }
        let wait = Duration::from_millis(limits::CLOSE_WAIT_MS);
        let _no_change = tokio::time::timeout(wait, self.core.changing_members.read()).await;
        self.hand_over_now().await;
    }

    /// Transfers leadership as [`hand_over`](Self::hand_over) does, without a wait for a change of the members.
    pub(in crate::node) async fn hand_over_now(&self) {
        let others: Vec<_> = self.core.voters().into_iter().filter(|node| *node != self.core.id).collect();
        if others.is_empty() {
            return;
        }
        let Some(handed) = self.transfer_to_one_of(&others).await else {
            tracing::warn!(node = self.core.id, "no node could take over leadership");
            return;
        };
        if let Err(error) = handed
            && self.leads()
        {
            tracing::warn!(node = self.core.id, %error, "the transfer of leadership failed");
        }
        // A node other than the chosen one may have become the leader.
        self.wait_until_published().await;
    }

    /// Waits until this node's servers know that another node leads: a node that stops earlier cannot send its clients
    /// to that leader.
    async fn wait_until_published(&self) {
        let mut leader = self.core.leader.subscribe();
        let moved = leader.wait_for(|leader| leader.as_ref().is_none_or(|leader| leader.node != self.core.id));
        // If this takes too long, clients of this node find the leader without its help.
        let _ = tokio::time::timeout(self.core.election_max, moved).await;
    }

    /// Waits for a candidate that lacks little of the log. Then pauses the queue until the first candidate has the
    /// whole log, and transfers leadership to it. Refused if another transfer has ended this node's leadership. `None`
    /// if no candidate answered and had the whole log in time.
    async fn transfer_to_one_of(&self, candidates: &[u64]) -> Option<Result<(), ServiceError>> {
        let _alone = self.core.transfer.lock().await;
        if !self.leads() {
            return Some(Err(self.not_sent(NotSent::NotLeader)));
        }
        // A node that has just restarted needs a while to connect, and callers are served meanwhile. A distant node may
        // never have the newest entries while they are, so in the end any node that answers will do.
        if self.one_of(candidates, limits::TRANSFER_LAG_ENTRIES_MAX).await.is_none() {
            self.first_of(&self.core.consensus.watch().borrow(), candidates, u64::MAX)?;
        }
        let paused = Paused::new(&self.core);
        let ready = self.one_of(candidates, 0).await?;
        let handed = self.core.consensus.transfer(ready).await;
        if handed.is_ok() {
            paused.keep_paused();
        }
        Some(handed.map_err(|error| self.proposal_failed(error, NotSent::NoLeader)))
    }

    /// Waits until one candidate lacks at most this many entries, and returns it. `None` if none does in time.
    async fn one_of(&self, candidates: &[u64], lag: u64) -> Option<u64> {
        let (mut views, mut close) = (self.core.consensus.watch(), None);
        let found = views.wait_for(|view| {
            close = self.first_of(view, candidates, lag);
            close.is_some()
        });
        drop(tokio::time::timeout(Duration::from_millis(limits::CATCH_UP_WAIT_MS), found).await);
        close
    }

    /// Returns the first candidate that answers and lacks at most this many entries.
    fn first_of(&self, view: &View, candidates: &[u64], lag: u64) -> Option<u64> {
        let contact_within = Duration::from_millis(2 * self.core.settings.timing_ms[0]);
        candidates.iter().copied().find(|node| view.can_take_over(*node, lag, contact_within))
    }
}

/// Pauses the proposal queue during a transfer of leadership. Dropping it resumes the queue: the transfer may fail, or
/// its task may end with the node.
struct Paused<'a> {
    core: &'a Core,
    keep_paused: bool,
}

impl<'a> Paused<'a> {
    fn new(core: &'a Core) -> Self {
        core.queue.pause();
        Self { core, keep_paused: false }
    }

    fn keep_paused(mut self) {
        self.keep_paused = true;
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if !self.keep_paused {
            self.core.queue.resume(self.core.clock.now());
        }
    }
}
