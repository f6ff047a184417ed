//! The state of Raft in this crate's own types, updated as it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Raft, RaftMetrics, ServerState, TokioInstant};
use tokio::sync::watch;
use tokio::time::Instant;

use super::state_machine::{Shared, StateMachine};
use super::types::Types;
use crate::limits::VIEW_MS_MIN;
use crate::model::Member;

/// A node's role in Raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Receives the log and has no vote.
    #[default]
    Learner,
    /// Receives the log and votes.
    Follower,
    /// Requests votes to become the leader.
    Candidate,
    /// Appends entries and replicates them.
    Leader,
    /// Raft has stopped on this node.
    Stopped,
}

/// What a node knows about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// The member's addresses.
    pub member: Member,
    /// Whether the member votes.
    pub voter: bool,
    /// The newest entry that the member is known to have; `None` on nodes other than the leader.
    pub matched: Option<u64>,
    /// When the member last answered; `None` on nodes other than the leader.
    pub last_contact: Option<Instant>,
}

/// The state of Raft on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The current term.
    pub term: u64,
    /// This node's role.
    pub role: Role,
    /// Id of the leader, if known.
    pub leader: Option<u64>,
    /// Index of the newest entry in the log; `None` before the first.
    pub last: Option<u64>,
    /// Index of the newest applied entry; `None` before the first.
    pub applied: Option<u64>,
    /// Whether this node leads and has applied an entry of its current term, so that its state contains everything that
    /// was ever acknowledged.
    pub own_term_applied: bool,
    /// When a quorum last acknowledged this leader; `None` on other nodes.
    pub quorum_acked: Option<Instant>,
    /// All members by their ids.
    pub members: BTreeMap<u64, MemberView>,
    /// The voters after a change of the membership that is in progress (joint consensus); `None` if there is none.
    pub joint: Option<BTreeSet<u64>>,
    /// Why this node must stop, if it must.
    pub fatal: Option<String>,
}

impl View {
    /// Whether this node leads, has applied an entry of its current term, and was acknowledged by a quorum within this
    /// time. A partitioned leader still considers itself the leader, but must not claim it.
    #[must_use]
    pub fn leads_within(&self, acked_within: Duration) -> bool {
        let alone = self.members.values().filter(|member| member.voter).count() == 1;
        self.own_term_applied && (alone || self.quorum_acked.is_some_and(|at| at.elapsed() <= acked_within))
    }

    /// Whether `node` could take over once it has at most `lag` more entries: it votes, and answered within
    /// `contact_within`.
    #[must_use]
    pub fn can_take_over(&self, node: u64, lag: u64, contact_within: Duration) -> bool {
        let Some(member) = self.members.get(&node) else { return false };
        self.role == Role::Leader
            && self.leader != Some(node)
            && member.voter
            && self.last <= member.matched.map(|matched| matched.saturating_add(lag))
            && member.last_contact.is_some_and(|last_contact| last_contact.elapsed() <= contact_within)
    }
}

/// Converts Raft's opaque instants to tokio's with one fixed pair of both, so that equal instants stay equal.
#[derive(Clone, Copy)]
struct Anchor {
    raft: TokioInstant,
    here: Instant,
}

impl Anchor {
    fn of(self, at: TokioInstant) -> Instant {
        self.here + if at > self.raft { at - self.raft } else { Duration::ZERO }
    }
}

fn seen(anchor: Anchor, metrics: &RaftMetrics<Types>, fault: Option<String>) -> View {
    let membership = &metrics.membership_config;
    let voters: Vec<u64> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, member)| {
        let matched = metrics.replication.as_ref().and_then(|all| all.get(id)?.as_ref().map(|at| at.index));
        let last_contact = metrics.heartbeat.as_ref().and_then(|all| all.get(id)?.as_ref().map(|at| anchor.of(**at)));
        let view = MemberView { member: member.clone(), voter: voters.contains(id), matched, last_contact };
        (*id, view)
    });
    let leads = metrics.state == ServerState::Leader;
    let own = metrics
        .last_applied
        .is_some_and(|at| at.leader_id.term == metrics.current_term && at.leader_id.node_id == metrics.id);
    // The state of an ended core is `Shutdown`, regardless of the reason.
    let broken = metrics.running_state.as_ref().err().filter(|fatal| !matches!(fatal, Fatal::Stopped));
    View {
        term: metrics.current_term,
        role: match metrics.state {
            ServerState::Learner => Role::Learner,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Leader => Role::Leader,
            ServerState::Shutdown => Role::Stopped,
        },
        leader: metrics.current_leader,
        last: metrics.last_log_index,
        applied: metrics.last_applied.map(|at| at.index),
        own_term_applied: leads && own,
        quorum_acked: metrics.last_quorum_acked.map(|at| anchor.of(*at)),
        members: members.collect(),
        joint: membership.membership().get_joint_config().get(1).cloned(),
        fatal: fault.or_else(|| broken.map(ToString::to_string)),
    }
}

/// Keeps the view up to date, and notifies the node when it must stop. Returns when Raft has stopped.
///
/// Raft's metrics change several times per entry, and most of these changes do not matter to those that watch the view.
/// A new role, leader or membership is published at once; progress is published at most every
/// [`VIEW_MS_MIN`](crate::limits::VIEW_MS_MIN) milliseconds.
pub(super) async fn follow(raft: Raft<Types, StateMachine>, shared: Arc<Shared>, views: watch::Sender<View>) {
    let anchor = Anchor { raft: <TokioInstant as openraft::Instant>::now(), here: tokio::time::Instant::now() };
    let mut metrics = raft.metrics();
    let mut server = raft.server_metrics();
    let mut faults = shared.fault.subscribe();
    let mut ended = false;
    loop {
        // Cloned at once because the guard blocks Raft's core.
        let now = metrics.borrow_and_update().clone();
        // The disk's own error is clearer than Raft's.
        let fault = faults.borrow_and_update().clone().or_else(|| shared.wal.failure());
        let view = seen(anchor, &now, fault);
        let settled = view.role != Role::Leader || view.own_term_applied;
        let fatal = view.fatal.clone();
        shared.raft_snapshot.store(now.snapshot.map_or(0, |id| id.index), Ordering::Relaxed);
        views.send_if_modified(|before| {
            // Within its term, the acknowledgements of a new leader would hide how long the cluster had none. So would
            // those of a leader that served no caller.
            if let Some(acked) = before.quorum_acked.filter(|_| before.term < view.term && before.own_term_applied) {
                shared.had_leader(acked);
            }
            let changed = *before != view;
            *before = view;
            changed
        });
        if let Some(why) = fatal {
            shared.fail(&why);
            shared.hooks.stopped(&why);
            return;
        }
        if ended {
            return;
        }
        let pause = if settled { Duration::from_millis(VIEW_MS_MIN) } else { Duration::ZERO };
        let next = tokio::time::Instant::now() + pause;
        let progress = async {
            let changed = metrics.changed().await;
            // Sleeps only after a change that came too early, so an idle node needs no second wake-up per heartbeat.
            if tokio::time::Instant::now() < next {
                tokio::time::sleep_until(next).await;
            }
            changed
        };
        // If the core has ended, its last state is in the metrics, and `progress` may already have consumed that
        // change. So the loop reads the metrics once more, without waiting for another change.
        ended = tokio::select! {
            changed = progress => changed.is_err(),
            changed = server.changed() => changed.is_err(),
            changed = faults.changed() => changed.is_err(),
        };
    }
}
